// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "finetune/data/batch.h"
#include "finetune/distributed/world.h"
#include "finetune/task/task.h"

namespace finetune {

// One optimizer update: the micro-batches of this rank. The loader owns them; they are valid until
// its next take().
struct Update {
  std::span<const Batch> batches;

  // Returns the micro-batches [first, first + at_once), fewer at the end, none after it.
  [[nodiscard]] std::span<const Batch> group(size_t first, size_t at_once) const;
};

// The denominators of an update's losses: the number of targets of each term of the task, measures
// included, over the whole update and all ranks. Accumulation therefore equals one large batch.
struct Targets {
  std::vector<int64_t> own;    // of this rank
  std::vector<int64_t> all;    // of all ranks
  std::vector<int64_t> ranks;  // number of ranks that have any
  int64_t tokens = 0;          // of all ranks
  int64_t padded_tokens = 0;   // the same with padding

  // A collective.
  [[nodiscard]] static Targets count(const Task& task, const Update& update, World& world);
  // Returns the factor of each term's loss sum: loss_scale / targets. `over_all_ranks`: the mean
  // over all targets (average_tokens_across_devices), else the mean of the ranks' means.
  [[nodiscard]] std::vector<double> scales(double loss_scale, bool over_all_ranks) const;
};

}  // namespace finetune
