// SPDX-License-Identifier: MIT
#include "data/streaming/shuffle_buffer.h"

#include <algorithm>
#include <numeric>

#include "finetune/base/error.h"
#include "finetune/base/random.h"
#include "finetune/data/permutation.h"

namespace finetune {

ShuffleBuffer::ShuffleBuffer(int64_t size, uint64_t seed) : size_(size), seed_(seed) {
  FT_CHECK(size >= 1, "a shuffle buffer holds a sample");
}

int64_t ShuffleBuffer::slot(int64_t epoch, int64_t position) const {
  const uint64_t number =
      random::make_key(seed_, random::Purpose::kOrder, static_cast<uint64_t>(epoch),
                       static_cast<uint64_t>(position) + 1);  // 0 is used by the permutation
  // The upper half of the product: uniform in [0, size) with a bias below 2^-64.
  return static_cast<int64_t>(
      (static_cast<unsigned __int128>(number) * static_cast<unsigned __int128>(size_)) >> 64);
}

// Output n replaces its slot's sample by sample n + size. A slot contains the sample put there by
// the last output from it, or the sample that filled it initially.
void ShuffleBuffer::move_to(int64_t epoch, int64_t position) {
  const bool is_ahead =
      epoch == epoch_ && position >= position_ && position - position_ <= 16 * size_;
  if (!is_ahead) {
    constexpr int64_t kUnknown = -1;
    slots_.assign(static_cast<size_t>(size_), kUnknown);
    int64_t unknown = size_;
    for (int64_t before = position - 1; before >= 0 && unknown > 0; --before) {
      int64_t& sample = slots_[static_cast<size_t>(slot(epoch, before))];
      if (sample != kUnknown) continue;
      sample = before + size_;
      --unknown;
    }
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i] == kUnknown) slots_[i] = static_cast<int64_t>(i);
    }
    epoch_ = epoch;
    position_ = position;
  }
  for (; position_ < position; ++position_) {
    slots_[static_cast<size_t>(slot(epoch, position_))] = position_ + size_;
  }
}

void ShuffleBuffer::append(int64_t epoch, int64_t begin, int64_t end, int64_t known,
                           std::vector<int64_t>& samples) {
  FT_CHECK(begin >= 0 && begin <= end && end <= known, "outputs exist");
  // From this output on, no sample is added.
  const int64_t first_left = std::max<int64_t>(0, known - size_);
  const int64_t replaced = std::min(end, first_left);
  if (begin < replaced) move_to(epoch, begin);
  for (int64_t position = begin; position < replaced; ++position) {
    int64_t& sample = slots_[static_cast<size_t>(slot(epoch, position))];
    samples.push_back(sample);
    sample = position + size_;
    position_ = position + 1;
  }
  if (end <= first_left) return;
  move_to(epoch, first_left);
  const Permutation order(std::min(known, size_), seed_, epoch);
  for (int64_t position = std::max(begin, first_left); position < end; ++position) {
    samples.push_back(slots_[static_cast<size_t>(order[position - first_left])]);
  }
}

const std::vector<int64_t>& ShuffleBuffer::content_at(int64_t epoch, int64_t position,
                                                      int64_t known) {
  const int64_t first_left = std::max<int64_t>(0, known - size_);
  move_to(epoch, std::min(position, first_left));
  if (position <= first_left && known >= size_) return slots_;
  left_.clear();
  if (position >= known) return left_;
  const Permutation order(std::min(known, size_), seed_, epoch);
  for (int64_t output = std::max(position, first_left); output < known; ++output) {
    left_.push_back(slots_[static_cast<size_t>(order[output - first_left])]);
  }
  return left_;
}

}  // namespace finetune
