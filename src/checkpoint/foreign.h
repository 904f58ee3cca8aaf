// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/base/file_system.h"
#include "finetune/checkpoint/reader.h"

namespace finetune::checkpoint {

// Throws Error(kCheckpoint) with the reason why the inspected checkpoint is not valid.
[[noreturn]] void reject_checkpoint(const std::string& reason);

// Checks a checkpoint that Hugging Face's Trainer wrote: it has no checksums, so its structure must
// do. trainer_state.json must name the folder's step, the weights and the optimizer's files must be
// complete in themselves. Fills the entry; throws Error where something is wrong.
void inspect_foreign(FileSystem& files, CheckpointEntry& entry, bool verify);

}  // namespace finetune::checkpoint
