// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "finetune/checkpoint/reader.h"
#include "finetune/config/load.h"
#include "finetune/state/run_state.h"
#include "train/run_storage.h"

namespace finetune {

// A finished run whose model is damaged, or whose record is.
struct DamagedEnd {
  std::string damage;             // as a clause
  std::optional<RunState> state;  // nothing: it cannot be read
};

// Announces that the model is rebuilt from `newest` and quarantines its damaged files. Throws
// Error(kCheckpoint) where there is no checkpoint, never silently starting at step 0, and
// Error(kConfig) where steps have to be trained again with keys that the run did not have.
void begin_rebuild(RunStorage& storage, const LoadedConfig& config, const DamagedEnd& end,
                   const std::optional<checkpoint::CheckpointEntry>& newest);

// Where the model is there but not the state that says "finished": warns, or throws
// Error(kCheckpoint) without a checkpoint, from which its end could be done again.
void check_lost_state(const std::string& output_dir, bool has_checkpoint);

}  // namespace finetune
