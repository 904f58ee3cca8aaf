// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/base/file_system.h"
#include "finetune/config/load.h"

// What an output folder or a mirror holds next to its checkpoints when a run begins at step 0.
namespace finetune {

// Moves weights, results, metrics and event files of a former run, or of another program, to
// "run.old-<k>", so that nothing takes them for the new run's, and copies the small files of the
// model (config.json, tokenizer) there, because the new run may read them. A mirror's index of
// files moves too: the new run has other files. Returns that folder; empty if there was nothing to
// move. Throws Error(kIo). Requires: the lock of the folder.
std::string set_aside_former_run(FileSystem& files, const std::string& output_dir);

// Throws Error(kConfig) if the output folder holds the weights of a model and no trace of a run:
// the end of a run would overwrite them.
void refuse_other_model(FileSystem& files, const LoadedConfig& config);

}  // namespace finetune
