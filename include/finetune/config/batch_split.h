// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

#include "finetune/config/training_args.h"

namespace finetune {

// The division of an update's samples: each of `ranks` ranks computes `accumulation` micro-batches
// of `rows` samples, one after the other. The result of an update depends only on
// effective_batch().
struct BatchSplit {
  int64_t rows = 8;
  int64_t accumulation = 1;
  int64_t ranks = 1;

  // Splits `effective_batch` samples into micro-batches of `rows`; nullopt if rows x ranks does not
  // divide them. Requires: all arguments above 0.
  [[nodiscard]] static std::optional<BatchSplit> of(int64_t effective_batch, int64_t rows,
                                                    int64_t ranks);

  [[nodiscard]] int64_t effective_batch() const { return rows * accumulation * ranks; }
  [[nodiscard]] int64_t rank_batch() const { return rows * accumulation; }  // samples of one rank
  [[nodiscard]] int64_t rows_of_all() const { return rows * ranks; }  // computed at the same time
  [[nodiscard]] int64_t micro_batches() const { return accumulation * ranks; }  // of all ranks

  // Returns the split of the same samples with smaller micro-batches: the largest divisor of
  // rank_batch() that is at most half of `rows`. nullopt if rows is 1.
  [[nodiscard]] std::optional<BatchSplit> next_smaller() const;

  friend bool operator==(const BatchSplit&, const BatchSplit&) = default;
};

// Returns the samples per update that the keys ask for: effective_batch_size, or else
// per_device_train_batch_size x gradient_accumulation_steps x ranks.
[[nodiscard]] int64_t asked_effective_batch(const TrainingArgs& args, int64_t ranks);

}  // namespace finetune
