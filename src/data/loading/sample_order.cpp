// SPDX-License-Identifier: MIT
#include "data/loading/sample_order.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/data/permutation.h"

namespace finetune {
namespace {

int64_t longest_sequence(const Dataset& dataset, int64_t sample) {
  int64_t longest = 0;
  for (int64_t choice = 0; choice < dataset.choices(); ++choice) {
    longest = std::max(longest, dataset.length(sample, choice));
  }
  return longest;
}

class PlainOrder final : public SampleOrder {
 public:
  explicit PlainOrder(SamplingStrategy sampling, int64_t size, uint64_t seed)
      : sampling_(sampling), size_(size), seed_(seed) {}

  void append(int64_t epoch, int64_t begin, int64_t end,
              std::vector<int64_t>& samples) const override {
    const Permutation order(size_, seed_, epoch);
    for (int64_t position = begin; position < end; ++position) {
      samples.push_back(sampling_ == SamplingStrategy::kSequential ? position : order[position]);
    }
  }

 private:
  SamplingStrategy sampling_;
  int64_t size_;
  uint64_t seed_;
};

class LengthGroupedOrder final : public SampleOrder {
 public:
  LengthGroupedOrder(const Dataset& dataset, int64_t group, uint64_t seed)
      : dataset_(dataset), group_(group), seed_(seed) {
    FT_CHECK(group >= 1, "a group has samples");
  }

  void append(int64_t epoch, int64_t begin, int64_t end,
              std::vector<int64_t>& samples) const override {
    const std::lock_guard lock(mutex_);
    while (begin < end) {
      const int64_t number = begin / group_;
      sort_group(epoch, number);
      const int64_t first = number * group_;
      const int64_t last = std::min(end, first + group_);
      samples.insert(samples.end(), newest_.begin() + (begin - first),
                     newest_.begin() + (last - first));
      begin = last;
    }
  }

 private:
  // Keeps the last sorted group, because several updates take samples from it.
  void sort_group(int64_t epoch, int64_t number) const {
    if (epoch == newest_epoch_ && number == newest_number_) return;
    newest_epoch_ = -1;
    const Permutation order(dataset_.size(), seed_, epoch);
    const int64_t first = number * group_;
    by_length_.clear();
    for (int64_t position = first; position < std::min(dataset_.size(), first + group_);
         ++position) {
      const int64_t sample = order[position];
      by_length_.push_back({longest_sequence(dataset_, sample), position, sample});
    }
    std::ranges::sort(by_length_, [](const Position& a, const Position& b) {
      return a.length != b.length ? a.length > b.length : a.position < b.position;
    });
    newest_.clear();
    for (const Position& position : by_length_) newest_.push_back(position.sample);
    newest_epoch_ = epoch;
    newest_number_ = number;
  }

  struct Position {
    int64_t length = 0;
    int64_t position = 0;
    int64_t sample = 0;
  };

  const Dataset& dataset_;
  int64_t group_;
  uint64_t seed_;
  mutable std::mutex mutex_;
  mutable std::vector<Position> by_length_;
  mutable std::vector<int64_t> newest_;  // samples of the last sorted group
  mutable int64_t newest_epoch_ = -1;    // -1: none yet
  mutable int64_t newest_number_ = 0;
};

}  // namespace

std::unique_ptr<SampleOrder> make_sample_order(int64_t size, SamplingStrategy sampling,
                                               uint64_t seed) {
  FT_CHECK(sampling != SamplingStrategy::kGroupByLength, "groups need the samples' lengths");
  return std::make_unique<PlainOrder>(sampling, size, seed);
}

std::unique_ptr<SampleOrder> make_length_grouped_order(const Dataset& dataset, int64_t group,
                                                       uint64_t seed) {
  return std::make_unique<LengthGroupedOrder>(dataset, group, seed);
}

}  // namespace finetune
