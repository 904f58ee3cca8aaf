// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/base/file_system.h"
#include "finetune/checkpoint/reader.h"

namespace finetune::checkpoint {

// Throws Error(kCheckpoint) with the reason why the inspected checkpoint is invalid.
[[noreturn]] void reject_checkpoint(const std::string& reason);

// Checks a checkpoint of transformers' Trainer by structure, because it has no checksums:
// trainer_state.json must contain the folder's step, and the files of weights and optimizer must be
// complete. Fills the entry; throws Error if something is wrong.
void inspect_foreign(FileSystem& files, CheckpointEntry& entry, bool verify);

}  // namespace finetune::checkpoint
