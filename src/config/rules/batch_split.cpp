// SPDX-License-Identifier: MIT
#include "finetune/config/batch_split.h"

namespace finetune {

std::optional<BatchSplit> BatchSplit::of(int64_t effective_batch, int64_t rows, int64_t ranks) {
  if (effective_batch % (rows * ranks) != 0) return std::nullopt;
  return BatchSplit{.rows = rows, .accumulation = effective_batch / (rows * ranks), .ranks = ranks};
}

std::optional<BatchSplit> BatchSplit::next_smaller() const {
  for (int64_t next = rows / 2; next > 0; --next) {
    if (rank_batch() % next != 0) continue;
    return BatchSplit{.rows = next, .accumulation = rank_batch() / next, .ranks = ranks};
  }
  return std::nullopt;
}

int64_t asked_effective_batch(const TrainingArgs& args, int64_t ranks) {
  const BatchSplit keys{.rows = args.per_device_train_batch_size,
                        .accumulation = args.gradient_accumulation_steps,
                        .ranks = ranks};
  return args.effective_batch_size.value_or(keys.effective_batch());
}

}  // namespace finetune
