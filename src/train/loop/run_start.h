// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/checkpoint/reader.h"
#include "train/loop/memory_recovery.h"
#include "train/save/saving.h"
#include "train/session/training_run.h"

namespace finetune {

// Starts a run at step 0 or at a checkpoint. Logs what was restored and what differs from the
// previous session.
class RunStart {
 public:
  RunStart(TrainingRun& run, MemoryRecovery& memory, Saving& saving)
      : run_(run), memory_(memory), saving_(saving) {}

  void begin_fresh();
  // `files` reads the checkpoint. Throws Error if the checkpoint belongs to another run or cannot
  // be read.
  void restore(const checkpoint::CheckpointEntry& from, FileSystem& files);

 private:
  void resume_own(const std::string& folder);
  void resume_foreign(const std::string& folder);
  void take_inputs();
  void check_shards(const RunState& saved);
  void log_restored() const;

  TrainingRun& run_;
  MemoryRecovery& memory_;
  Saving& saving_;
};

}  // namespace finetune
