// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "train/evaluate.h"
#include "train/saving.h"
#include "train/training_run.h"
#include "train/update_step.h"

namespace finetune {

// Retries what ran out of memory with fewer samples at a time, which gives the same results. Owns
// RunState::cut: what did not fit is not tried again in later sessions on this machine.
class MemoryRecovery {
 public:
  MemoryRecovery(TrainingRun& run, Saving& saving, UpdateStep& step);

  // One update. Throws the out-of-memory error if not even one sample fits. A collective.
  [[nodiscard]] StepReport run_step();
  // One pass over a split's data; nothing where a stop was requested.
  [[nodiscard]] std::optional<EvaluationResult> run_evaluation(Split split);
  // Of a run that resumes from `saved`, whose updates the keys divide into `asked`.
  void take_saved_split(const RunState& saved, const BatchSplit& asked);

 private:
  // False where one micro-batch is computed at a time already, in all ranks.
  bool compute_fewer_at_once();
  void split_smaller();

  TrainingRun& run_;
  Saving& saving_;
  UpdateStep& step_;
  int64_t eval_rows_;  // per_device_eval_batch_size, or fewer where memory did not suffice
};

}  // namespace finetune
