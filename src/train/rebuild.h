// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "finetune/checkpoint/reader.h"
#include "finetune/config/load.h"
#include "train/run_state.h"
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

// Warns where manifest.json of a finished model is there, but finetune_state.json, which says that
// the run is finished, is missing: lost, or not written before a kill.
void warn_of_lost_state(const std::string& output_dir);

}  // namespace finetune
