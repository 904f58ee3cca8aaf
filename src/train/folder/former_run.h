// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/base/file_system.h"
#include "finetune/config/load.h"

// What an output folder or a mirror holds next to its checkpoints when a run begins at step 0.
namespace finetune {

// Moves weights, results, metrics and event files of a former run, or of another program, to
// "run.old-<k>", so that they are not treated as files of the new run, and copies the small files
// of the model (config.json, tokenizer) there, because the new run may read them. A mirror's index
// of files moves too: the new run has other files. Returns that folder; empty if there was nothing
// to move. Throws Error(kIo). Requires: the lock of the folder.
std::string quarantine_former_run(FileSystem& files, const std::string& output_dir);

// A folder that the run writes to, and the key that names it.
struct OwnedFolder {
  std::string path;
  const char* key = "output_dir";
};
// Throws Error(kConfig) if config.json, manifest.json, finetune_state.json, metrics.jsonl or
// sessions.jsonl in the folder is JSON of another program: a configuration, or another file of the
// user. Next to a run's files only config.json is looked at. Requires: the folder holds no finished
// run.
void refuse_other_json(FileSystem& files, const KeyLocations& keys, const OwnedFolder& folder);
// Throws Error(kConfig) if the folder holds a file that the end of a run would overwrite and no
// trace of a run, or a folder "checkpoint-<N>" without any file of a checkpoint.
void refuse_foreign_files(FileSystem& files, const KeyLocations& keys, const OwnedFolder& folder);

}  // namespace finetune
