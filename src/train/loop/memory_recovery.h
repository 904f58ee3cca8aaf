// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "train/loop/evaluate.h"
#include "train/loop/update_step.h"
#include "train/save/saving.h"
#include "train/session/training_run.h"

namespace finetune {

// Retries what ran out of memory with fewer samples at a time, which gives the same results. Owns
// RunState::cut: later sessions on this machine do not try a size that did not fit.
class MemoryRecovery {
 public:
  MemoryRecovery(TrainingRun& run, Saving& saving, UpdateStep& step);

  // Runs one update. Throws the out-of-memory error if not even one sample fits. A collective.
  [[nodiscard]] StepReport run_step();
  // Runs one pass over a split's data; nullopt if a stop was requested.
  [[nodiscard]] std::optional<EvaluationResult> run_evaluation(Split split);
  // Takes over the split of a run that resumes from `saved`; `asked` is the split of the keys.
  void take_saved_split(const RunState& saved, const BatchSplit& asked);

 private:
  // Returns false if all ranks already compute only one micro-batch at a time.
  bool compute_fewer_at_once();
  void split_smaller();

  TrainingRun& run_;
  Saving& saving_;
  UpdateStep& step_;
  int64_t eval_rows_;  // per_device_eval_batch_size, or fewer after OOM
};

}  // namespace finetune
