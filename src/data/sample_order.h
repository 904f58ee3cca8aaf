// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "finetune/data/loader.h"

namespace finetune {

// The order in which an epoch visits the samples: a permutation that is a function of (seed, epoch,
// index), in constant time for any index. Its values are part of the checkpoint format. May be used
// from several threads at once.
class SampleOrder {
 public:
  virtual ~SampleOrder() = default;
  // Appends the samples at the indices [begin, end) of an epoch.
  virtual void append(int64_t epoch, int64_t begin, int64_t end,
                      std::vector<int64_t>& samples) const = 0;
};

// The permutation of (seed, epoch), or the order of the files.
[[nodiscard]] std::unique_ptr<SampleOrder> make_sample_order(int64_t size,
                                                             SamplingStrategy sampling,
                                                             uint64_t seed);

// The same permutation in groups of `group` samples, each sorted by length, the longest first
// (transformers' LengthGroupedSampler, without its exchange that puts the longest sample of all in
// front). Equal lengths stay in the permutation's order. No more than a group is held in memory.
// Requires: `dataset` outlives the order; group >= 1.
[[nodiscard]] std::unique_ptr<SampleOrder> make_length_grouped_order(const Dataset& dataset,
                                                                     int64_t group, uint64_t seed);

}  // namespace finetune
