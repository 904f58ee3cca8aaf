// SPDX-License-Identifier: MIT
#include "finetune/data/loader.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "data/sample_order.h"
#include "data/updates_ahead.h"
#include "finetune/base/error.h"
#include "finetune/data/packing_plan.h"

namespace finetune {

struct Loader::State {
  std::shared_ptr<const Dataset> dataset;
  std::shared_ptr<const Collator> collator;
  LoaderOptions options;
  std::optional<PackingPlan> packing;
  std::unique_ptr<const SampleOrder> order;  // of the samples, or of the packed rows
  int64_t samples_per_epoch = 0;

  // Last, so that its threads are gone before what they use.
  UpdatesAhead ahead;

  State(std::shared_ptr<const Dataset> samples, std::shared_ptr<const Collator> how,
        const LoaderOptions& chosen, const ShowStep& show)
      : dataset(std::move(samples)),
        collator(std::move(how)),
        options(chosen),
        packing(make_packing(*dataset, chosen, show)),
        order(chosen.sampling == SamplingStrategy::kGroupByLength
                  ? make_length_grouped_order(*dataset, chosen.length_group, chosen.seed)
                  : make_sample_order(units(), chosen.sampling, chosen.seed)),
        ahead(chosen.workers, 1 + chosen.prefetch,
              {.prepare = [this](PreparedUpdate& update) { prepare(update); },
               .position = [this](const Position& position) { return after(position); }}) {}

  static std::optional<PackingPlan> make_packing(const Dataset& data, const LoaderOptions& chosen,
                                                 const ShowStep& show) {
    if (chosen.packed_length == 0) return std::nullopt;
    return PackingPlan(data,
                       {.capacity = chosen.packed_length,
                        .keeps_order = chosen.sampling == SamplingStrategy::kSequential},
                       show);
  }
  // What an epoch consists of.
  [[nodiscard]] int64_t units() const { return packing ? packing->rows() : dataset->size(); }
  [[nodiscard]] int64_t update_size() const { return options.batch_size * options.micro_batches; }

  [[nodiscard]] Position normalised(const Position& position) const {
    FT_CHECK(position.epoch >= 0 && position.sample >= 0, "a position is not negative");
    if (position.sample < samples_per_epoch) return position;
    return {.epoch = position.epoch + 1, .sample = 0};
  }

  [[nodiscard]] Position after(const Position& position) const {
    const Position start = normalised(position);
    return normalised({.epoch = start.epoch, .sample = start.sample + update_size()});
  }

  // Requires: a normalised position.
  void prepare(PreparedUpdate& update) const {
    const Position& position = update.position;
    update.count = 0;
    const int64_t end = std::min(samples_per_epoch, position.sample + update_size());
    const int64_t share = update_size() / options.parts;  // of an update that is not the last
    const int64_t first = position.sample + options.part * share;
    int64_t place = first_place(update, std::min(first, end));
    for (int64_t begin = first; begin < std::min(end, first + share); begin += options.batch_size) {
      const int64_t behind = std::min(end, begin + options.batch_size);
      find_keys(update, begin, behind);
      Batch& batch = update.add();
      collator->collate(*dataset, update.keys, batch);
      batch.first_place = place;
      place += batch.rows;
      if (packing) batch.packed_rows = behind - begin;
    }
  }

  // Where row `first` of the update stands in its effective batch.
  [[nodiscard]] int64_t first_place(PreparedUpdate& update, int64_t first) const {
    const int64_t begin = update.position.sample;
    if (!packing) return (first - begin) * dataset->choices();
    find_keys(update, begin, first);
    return std::ssize(update.keys);
  }

  void find_keys(PreparedUpdate& update, int64_t begin, int64_t end) const {
    const int64_t epoch = update.position.epoch;
    update.samples.clear();
    order->append(epoch, begin, end, update.samples);
    if (packing) {
      update.rows.swap(update.samples);
      update.samples.clear();
      for (const int64_t row : update.rows) packing->append(row, update.samples, update.group);
    }
    update.keys.clear();
    for (const int64_t sample : update.samples) {
      update.keys.push_back({.index = sample, .epoch = epoch});
    }
  }
};

Loader::Loader(std::shared_ptr<const Dataset> dataset, std::shared_ptr<const Collator> collator,
               const LoaderOptions& options, const ShowStep& show) {
  FT_CHECK(options.batch_size >= 1 && options.micro_batches >= 1, "an update has rows");
  FT_CHECK(options.parts >= 1 && options.micro_batches % options.parts == 0 && options.part >= 0 &&
               options.part < options.parts,
           "each part of an update has as many micro-batches");
  FT_CHECK(options.workers >= 0 && options.prefetch >= 0, "no negative number of workers");
  FT_CHECK(dataset->size() >= 1, "a loader needs samples");
  state_ = std::make_unique<State>(std::move(dataset), std::move(collator), options, show);
  const int64_t size = state_->units();
  const int64_t multiple = options.drop_multiple > 0 ? options.drop_multiple : options.batch_size;
  state_->samples_per_epoch = options.drop_last ? size / multiple * multiple : size;
  if (state_->samples_per_epoch == 0) {
    throw Error(ErrorKind::kConfig, "dataloader_drop_last leaves nothing of " +
                                        std::to_string(size) +
                                        (state_->packing ? " packed rows" : " samples") +
                                        " with batches of " + std::to_string(multiple) +
                                        "; lower per_device_train_batch_size or set "
                                        "dataloader_drop_last: false");
  }
}

Loader::~Loader() = default;

int64_t Loader::samples_per_epoch() const { return state_->samples_per_epoch; }

int64_t Loader::updates_per_epoch() const {
  return (state_->samples_per_epoch + state_->update_size() - 1) / state_->update_size();
}

std::span<const Batch> Loader::take(const Position& position) {
  return state_->ahead.take(state_->normalised(position));
}

Position Loader::after(const Position& position) const { return state_->after(position); }

EvaluationLoader::EvaluationLoader(std::shared_ptr<const Dataset> dataset,
                                   std::shared_ptr<const Collator> collator, int64_t batch_size,
                                   bool drop_last)
    : dataset_(std::move(dataset)),
      collator_(std::move(collator)),
      batch_size_(batch_size),
      drop_last_(drop_last) {
  FT_CHECK(batch_size >= 1, "a batch has rows");
}

int64_t EvaluationLoader::batches() const {
  const int64_t extra = drop_last_ ? 0 : batch_size_ - 1;
  return (dataset_->size() + extra) / batch_size_;
}

void EvaluationLoader::get(int64_t index, Batch& batch) {
  FT_CHECK(index >= 0 && index < batches(), "batch lies outside the evaluation data");
  keys_.clear();
  const int64_t end = std::min(dataset_->size(), (index + 1) * batch_size_);
  for (int64_t sample = index * batch_size_; sample < end; ++sample) {
    keys_.push_back({.index = sample, .epoch = SampleKey::kEvaluation});
  }
  collator_->collate(*dataset_, keys_, batch);
}

}  // namespace finetune
