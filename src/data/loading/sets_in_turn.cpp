// SPDX-License-Identifier: MIT
#include "finetune/data/sets_in_turn.h"

#include <algorithm>
#include <utility>

#include "data/loading/sample_order.h"
#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/data/permutation.h"

namespace finetune {
namespace {

// The last one may be filled up.
int64_t updates_of(const MixturePart& part, int64_t update) {
  return (part.data->size() + update - 1) / update;
}

}  // namespace

int64_t samples_in_turn(const MixedDataset& data, SetSampling sampling, int64_t update) {
  FT_CHECK(sampling != SetSampling::kNone && update >= 1, "each update is of one part");
  int64_t updates = 0;
  int64_t fewest = INT64_MAX;
  for (const MixturePart& part : data.parts()) {
    const int64_t size = part.data->size();
    if (size < update) {
      throw Error(ErrorKind::kConfig,
                  format_text("train_file: '{}' has {} samples, fewer than the {} of an update; "
                              "lower effective_batch_size, or leave it out",
                              part.name, size, update));
    }
    fewest = std::min(fewest, updates_of(part, update));
    updates += updates_of(part, update);
  }
  if (sampling == SetSampling::kRoundRobin) updates = fewest * std::ssize(data.parts());
  return updates * update;
}

SetsInTurn::SetsInTurn(std::shared_ptr<const MixedDataset> data, SetSampling sampling,
                       int64_t update, uint64_t seed, const MakeOrder& make_order)
    : data_(std::move(data)),
      sampling_(sampling),
      update_(update),
      seed_(seed),
      samples_(samples_in_turn(*data_, sampling, update)) {
  for (const MixturePart& part : data_->parts()) orders_.push_back(make_order(*part.data));
}

SetsInTurn::~SetsInTurn() = default;

SetsInTurn::Block SetsInTurn::block_of(int64_t epoch, int64_t index) const {
  const int64_t number = index / update_;
  const int64_t parts = std::ssize(orders_);
  if (sampling_ == SetSampling::kRoundRobin) {
    return {.part = static_cast<size_t>(number % parts), .number = number / parts};
  }
  int64_t left = Permutation(samples_ / update_, seed_, epoch)[number];
  size_t part = 0;
  while (left >= updates_of(data_->parts()[part], update_)) {
    left -= updates_of(data_->parts()[part++], update_);
  }
  return {.part = part, .number = left};
}

int64_t SetsInTurn::part_at(int64_t epoch, int64_t index) const {
  return static_cast<int64_t>(block_of(epoch, index).part);
}

const std::shared_ptr<const Dataset>& SetsInTurn::data_at(int64_t epoch, int64_t index) const {
  return data_->parts()[block_of(epoch, index).part].data;
}

void SetsInTurn::append(int64_t epoch, int64_t begin, int64_t end,
                        std::vector<int64_t>& samples) const {
  if (begin == end) return;
  FT_CHECK(begin / update_ == (end - 1) / update_, "samples of one update");
  const Block block = block_of(epoch, begin);
  const int64_t first = block.number * update_ + begin % update_;
  const int64_t last = first + (end - begin);
  const int64_t size = data_->parts()[block.part].data->size();
  const SampleOrder& order = *orders_[block.part];
  const int64_t there = std::clamp(size, first, last);
  if (first < there) order.append(epoch, first, there, samples);
  if (there < last) order.append(epoch, there - size, last - size, samples);
}

}  // namespace finetune
