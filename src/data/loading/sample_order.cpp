// SPDX-License-Identifier: MIT
#include "data/loading/sample_order.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <unordered_set>
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

class OrderWithoutDuplicates final : public SampleOrder {
 public:
  OrderWithoutDuplicates(const Dataset& dataset, int64_t group, uint64_t seed)
      : dataset_(dataset), group_(group), seed_(seed) {
    FT_CHECK(group >= 1, "a group has samples");
  }

  void append(int64_t epoch, int64_t begin, int64_t end,
              std::vector<int64_t>& samples) const override {
    const std::lock_guard lock(mutex_);
    const std::vector<int64_t>& order = order_of(epoch);
    samples.insert(samples.end(), order.begin() + begin, order.begin() + end);
  }

 private:
  // Samples that wait are looked at again for each group, but no more than these.
  static constexpr int64_t kMostWaiting = 1 << 14;

  // Workers prepare the next epoch while this one is used.
  const std::vector<int64_t>& order_of(int64_t epoch) const {
    if (hashes_.empty()) hashes_ = hash_sequences(dataset_);
    if (const auto found = orders_.find(epoch); found != orders_.end()) return found->second;
    if (orders_.size() > 1) orders_.erase(orders_.begin());
    return orders_.emplace(epoch, make_order(epoch)).first->second;
  }

  [[nodiscard]] std::vector<int64_t> make_order(int64_t epoch) const {
    const Permutation permutation(dataset_.size(), seed_, epoch);
    std::vector<int64_t> order;
    std::deque<int64_t> waiting;
    std::unordered_set<uint64_t> there;  // in the group
    int64_t next = 0;
    while (std::ssize(order) < dataset_.size()) {
      const int64_t full = std::min(dataset_.size(), std::ssize(order) + group_);
      there.clear();
      const auto is_taken = [&](int64_t sample) {
        const std::span<const uint64_t> own = hashes_of(sample);
        if (std::ranges::any_of(own, [&](uint64_t hash) { return there.contains(hash); })) {
          return false;
        }
        there.insert(own.begin(), own.end());
        order.push_back(sample);
        return true;
      };
      std::deque<int64_t> still;
      const auto looked_at = std::min<int64_t>(kMostWaiting, std::ssize(waiting));
      for (int64_t i = 0; i < looked_at; ++i) {
        const int64_t sample = waiting.front();
        waiting.pop_front();
        if (std::ssize(order) == full || !is_taken(sample)) still.push_back(sample);
      }
      waiting.insert(waiting.begin(), still.begin(), still.end());
      while (std::ssize(order) < full && next < dataset_.size()) {
        const int64_t sample = permutation[next++];
        if (!is_taken(sample)) waiting.push_back(sample);
      }
      while (std::ssize(order) < full) {  // an epoch's end
        order.push_back(waiting.front());
        waiting.pop_front();
      }
    }
    return order;
  }

  [[nodiscard]] std::span<const uint64_t> hashes_of(int64_t sample) const {
    const auto texts = static_cast<size_t>(dataset_.choices());
    return std::span(hashes_).subspan(static_cast<size_t>(sample) * texts, texts);
  }

  const Dataset& dataset_;
  int64_t group_;
  uint64_t seed_;
  mutable std::mutex mutex_;
  mutable std::vector<uint64_t> hashes_;
  mutable std::map<int64_t, std::vector<int64_t>> orders_;  // of the last two epochs
};

}  // namespace

// FNV-1a of the ids.
std::vector<uint64_t> hash_sequences(const Dataset& dataset) {
  constexpr uint64_t kPrime = 0x100000001b3;
  std::vector<uint64_t> hashes;
  hashes.reserve(static_cast<size_t>(dataset.size() * dataset.choices()));
  for (int64_t sample = 0; sample < dataset.size(); ++sample) {
    for (int64_t choice = 0; choice < dataset.choices(); ++choice) {
      uint64_t hash = 0xcbf29ce484222325;
      for (const int32_t id : dataset.get(sample, choice).input_ids) {
        hash = (hash ^ static_cast<uint64_t>(id)) * kPrime;
      }
      hashes.push_back(hash);
    }
  }
  return hashes;
}

std::unique_ptr<SampleOrder> make_order_without_duplicates(const Dataset& dataset, int64_t group,
                                                           uint64_t seed) {
  return std::make_unique<OrderWithoutDuplicates>(dataset, group, seed);
}

std::unique_ptr<SampleOrder> make_sample_order(int64_t size, SamplingStrategy sampling,
                                               uint64_t seed) {
  FT_CHECK(sampling == SamplingStrategy::kRandom || sampling == SamplingStrategy::kSequential,
           "groups are made of the samples");
  return std::make_unique<PlainOrder>(sampling, size, seed);
}

std::unique_ptr<SampleOrder> make_length_grouped_order(const Dataset& dataset, int64_t group,
                                                       uint64_t seed) {
  return std::make_unique<LengthGroupedOrder>(dataset, group, seed);
}

}  // namespace finetune
