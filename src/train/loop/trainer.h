// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "finetune/checkpoint/reader.h"
#include "train/loop/evaluations.h"
#include "train/loop/memory_recovery.h"
#include "train/loop/poison.h"
#include "train/loop/recovery.h"
#include "train/loop/run_end.h"
#include "train/loop/run_start.h"
#include "train/loop/update_step.h"
#include "train/save/best_model.h"
#include "train/save/saving.h"
#include "train/session/compile_progress.h"
#include "train/session/run_log.h"
#include "train/session/session_watch.h"
#include "train/session/training_run.h"

namespace finetune {

// The training loop. All state of a run changes only at update boundaries: a stop between two
// micro-batches discards them, and the next session computes them again.
class Trainer {
 public:
  // The arguments must outlive the trainer. A collective, like all members.
  Trainer(const LoadedConfig& config, const RunOptions& options, RunStorage& storage, Parts& parts,
          ProgressDisplay& progress);

  // Call one of the two before run(): start at step 0, or at a checkpoint.
  void start_fresh() { start_.begin_fresh(); }
  // `files` reads the checkpoint.
  void restore(const checkpoint::CheckpointEntry& from, FileSystem& files) {
    start_.restore(from, files);
  }

  // Trains to the end or until a stop is requested, exports the model and writes the results.
  // Returns the exit code of the process.
  int run();

  // What advice after OOM is about.
  [[nodiscard]] int64_t step() const { return run_.state.step; }
  [[nodiscard]] int64_t samples_at_a_time() const { return run_.split.rows; }

 private:
  enum class Outcome { kContinue, kStopped };

  void begin_session();
  // One iteration of the loop: a step and what is due after it, or a rollback.
  Outcome run_round();
  // Counts a step whose update was applied or skipped.
  void accept(const StepReport& report);
  void count_loss(const StepReport& report);
  void count_measures(const StepReport& report);
  // Runs logging, evaluation and saving that are due after a step, in transformers' order.
  Outcome finish_step();
  // Restores the newest checkpoint in the same process, with the result of a restart.
  void roll_back(const std::string& reason);
  // Saves this step and returns the exit code.
  int stop_early();
  int finish();
  void log_idle_threads() const;
  [[nodiscard]] std::string how_to_resume() const;

  TrainingRun run_;
  SessionWatch watch_;
  RunLog log_;
  std::shared_ptr<CheckpointPart> model_;
  Saving saving_;
  UpdateStep step_;
  MemoryRecovery memory_;
  Evaluations evaluations_;
  BestModel best_;
  Recovery recovery_;
  RunStart start_;
  RunEnd end_;
  Poison poison_;
  CompileProgress compile_progress_;
  double flos_per_token_ = 0.0;
};

}  // namespace finetune
