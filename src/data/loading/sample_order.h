// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "finetune/data/loader.h"

namespace finetune {

// The order of samples in an epoch: a permutation that is a function of (seed, epoch, index), in
// constant time for any index. Part of the checkpoint format. Thread-safe.
class SampleOrder {
 public:
  virtual ~SampleOrder() = default;
  // Appends the samples at the indices [begin, end) of an epoch.
  virtual void append(int64_t epoch, int64_t begin, int64_t end,
                      std::vector<int64_t>& samples) const = 0;
};

// Makes the permutation of (seed, epoch), or the order of the files.
[[nodiscard]] std::unique_ptr<SampleOrder> make_sample_order(int64_t size,
                                                             SamplingStrategy sampling,
                                                             uint64_t seed);

// Makes the same permutation in groups of `group` samples, each sorted by length, longest first
// (transformers' LengthGroupedSampler without the swap that moves the longest sample of all to the
// front). Equal lengths keep the permutation's order. At most one group is in memory. Requires:
// `dataset` outlives the order; group >= 1.
[[nodiscard]] std::unique_ptr<SampleOrder> make_length_grouped_order(const Dataset& dataset,
                                                                     int64_t group, uint64_t seed);

// Takes the samples of the permutation in its order, but no two with an equal sequence into the
// same group of `group` samples: a sample whose sequence is there already waits for a later group,
// as in sentence-transformers' NoDuplicatesBatchSampler. Where only such samples are left, at an
// epoch's end, they fill the groups. An epoch's order and a hash of each sequence are in memory.
// Requires: as above.
[[nodiscard]] std::unique_ptr<SampleOrder> make_order_without_duplicates(const Dataset& dataset,
                                                                         int64_t group,
                                                                         uint64_t seed);

}  // namespace finetune
