// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "finetune/checkpoint/reader.h"
#include "finetune/config/load.h"
#include "finetune/train/run.h"
#include "train/folder/run_storage.h"
#include "train/setup/session.h"

// How a session starts. decide() maps what is known of the command and the output folder to a case;
// begin_run() observes, asks decide(), and acts.
namespace finetune {

struct StartFacts {
  // Of finetune_state.json in the output folder, which marks a finished run.
  enum class Record {
    kNone,      // also where resume_from_checkpoint names the start of another run
    kDamaged,   // it cannot be read, here or in a mirror
    kFinished,  // a run that had ended before this session
  };

  bool restarts = false;  // --restart, or resume_from_checkpoint: none
  Record record = Record::kNone;
  bool asks_for_more = false;  // for more steps than the finished run made
  // Expensive to find, or not without changes or messages: unset until decide() asks.
  std::optional<bool> is_model_whole =
      {};                    // the finished model matches its checksums; unset: not verified
  bool is_compared = false;  // the command belongs to the finished run
  std::optional<bool> is_session_over = {};  // a limit leaves no time for a step
  std::optional<bool> has_checkpoint = {};   // there is one to resume from
  bool is_record_lost = false;               // there is a finished model without its record
};

enum class StartCase {
  // Undecided: find this out, then ask again.
  kVerifyModel,
  kCompareRun,
  kCheckSession,
  kFindCheckpoint,
  // Decided: what the session does.
  kRestart,      // start at step 0, after everything in the folder is moved aside
  kFresh,        // start at step 0
  kResume,       // continue from a checkpoint
  kExtend,       // continue a finished run for more steps
  kRepeatEnd,    // from a checkpoint, because the record of the end is lost
  kRebuild,      // train the damaged model of a finished run again, from a checkpoint
  kFinished,     // nothing to do
  kSessionOver,  // nothing to do in this session
  // Errors, because there is no checkpoint.
  kNothingToExtend,
  kNothingToRepeat,
  kNothingToRebuild,
};

// Pure. The order of its tests is the order in which a start looks.
[[nodiscard]] StartCase decide(const StartFacts& facts);

struct Beginning {
  std::optional<int> code = {};                            // exit code, if there is nothing to do
  std::optional<checkpoint::CheckpointEntry> newest = {};  // to resume from; nullopt: step 0
};

// Examines the output folder and its mirrors, and prepares them. `again`: a checkpoint could not be
// read in the previous attempt. Requires: called by rank 0 alone. Throws Error(kConfig) if the
// folder holds another run or files of another program, Error(kCheckpoint) if what is there cannot
// be continued, Error(kIo), Error(kBusy), Interrupted.
[[nodiscard]] Beginning begin_run(RunStorage& storage, const LoadedConfig& config,
                                  const RunOptions& options, const SessionStart& start, bool again);

// The state of a checkpoint. Throws Error(kIo), Error(kCheckpoint).
[[nodiscard]] RunState state_of(const checkpoint::CheckpointEntry& entry);

}  // namespace finetune
