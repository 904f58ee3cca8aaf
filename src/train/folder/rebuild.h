// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "finetune/checkpoint/reader.h"
#include "finetune/config/load.h"
#include "finetune/state/run_state.h"
#include "train/folder/run_storage.h"

namespace finetune {

// A finished run whose model or record is damaged.
struct DamagedEnd {
  std::string damage;             // as a clause
  std::optional<RunState> state;  // nullopt: it cannot be read
};

// Announces that the model is rebuilt from `newest` and quarantines its damaged files. Throws
// Error(kCheckpoint) if there is no checkpoint, instead of silently starting at step 0, and
// Error(kConfig) if steps would be trained again with keys that the run did not have.
void begin_rebuild(RunStorage& storage, const LoadedConfig& config, const DamagedEnd& end,
                   const std::optional<checkpoint::CheckpointEntry>& newest);

// Handles a model whose state file, which marks the run as finished, is missing: warns, or throws
// Error(kCheckpoint) if there is no checkpoint to repeat the end of the run from.
void check_lost_state(const std::string& output_dir, bool has_checkpoint);

}  // namespace finetune
