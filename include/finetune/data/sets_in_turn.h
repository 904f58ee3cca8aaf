// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "finetune/data/loader.h"
#include "finetune/data/mixed_dataset.h"

namespace finetune {

class SampleOrder;

// Returns the samples of an epoch whose updates of `update` samples are each of one part. Throws
// Error(kConfig) if a part has fewer samples than an update.
[[nodiscard]] int64_t samples_in_turn(const MixedDataset& data, SetSampling sampling,
                                      int64_t update);

// The order of an epoch whose updates are each of one part of a mixture: a function of (seed,
// epoch, index). A part has an update for each `update` of its samples; the last one of an epoch is
// filled up from the part's beginning, so each sample is seen at least once with kProportional.
// Part of the checkpoint format. Thread-safe.
class SetsInTurn {
 public:
  // Makes the order of a part's samples.
  using MakeOrder = std::function<std::unique_ptr<const SampleOrder>(const Dataset& part)>;

  // Throws as samples_in_turn().
  SetsInTurn(std::shared_ptr<const MixedDataset> data, SetSampling sampling, int64_t update,
             uint64_t seed, const MakeOrder& make_order);
  ~SetsInTurn();

  [[nodiscard]] int64_t samples_per_epoch() const { return samples_; }
  // Returns the part of the update with this index of an epoch. Requires: index <
  // samples_per_epoch().
  [[nodiscard]] int64_t part_at(int64_t epoch, int64_t index) const;
  [[nodiscard]] const std::shared_ptr<const Dataset>& data_at(int64_t epoch, int64_t index) const;
  // Appends the samples at the indices [begin, end), which are of one update, as indices in their
  // part.
  void append(int64_t epoch, int64_t begin, int64_t end, std::vector<int64_t>& samples) const;

 private:
  struct Block {
    size_t part;
    int64_t number;  // of the part's updates in the epoch
  };
  [[nodiscard]] Block block_of(int64_t epoch, int64_t index) const;
  std::shared_ptr<const MixedDataset> data_;
  SetSampling sampling_;
  int64_t update_;  // samples
  uint64_t seed_;
  int64_t samples_;                                         // of an epoch
  std::vector<std::unique_ptr<const SampleOrder>> orders_;  // by part
};

}  // namespace finetune
