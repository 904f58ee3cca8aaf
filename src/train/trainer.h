// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "finetune/checkpoint/reader.h"
#include "train/best_model.h"
#include "train/evaluations.h"
#include "train/memory_recovery.h"
#include "train/poison.h"
#include "train/recovery.h"
#include "train/run_end.h"
#include "train/run_log.h"
#include "train/run_start.h"
#include "train/saving.h"
#include "train/session_watch.h"
#include "train/training_run.h"
#include "train/update_step.h"

namespace finetune {

// The training loop. Everything that a run consists of changes at update boundaries only: a stop
// between two micro-batches discards them, and the next session computes them again.
class Trainer {
 public:
  // The arguments must outlive it. A collective, as all members are.
  Trainer(const LoadedConfig& config, const RunOptions& options, RunStorage& storage, Parts& parts,
          ProgressDisplay& progress);

  // One of the two, before run(): begins at step 0, or where the checkpoint is.
  void start_fresh() { start_.begin_fresh(); }
  // `files` reads the checkpoint.
  void restore(const checkpoint::CheckpointEntry& from, FileSystem& files) {
    start_.restore(from, files);
  }

  // Trains to the end or until a stop is requested, exports the model, writes the results. Returns
  // the exit code of the contract.
  int run();

 private:
  enum class Outcome { kContinue, kStopped };

  void begin_session();
  // One round of the loop: a step with what is due after it, or a rollback.
  Outcome run_round();
  // Counts a step whose update was applied or left out.
  void accept(const StepReport& report);
  void count_loss(const StepReport& report);
  // Logging, evaluation and saving that are due after a step, in transformers' order.
  Outcome finish_step();
  // In the same process, as a restart would.
  void roll_back(const std::string& reason);
  // Saves the step; returns the exit code.
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
  double flos_per_token_ = 0.0;
};

}  // namespace finetune
