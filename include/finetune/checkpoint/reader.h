// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "finetune/base/file_system.h"
#include "finetune/checkpoint/layout.h"

namespace finetune::checkpoint {

// One line for the log.
using Report = std::function<void(const std::string& line)>;

struct CheckpointEntry {
  std::string path;
  int64_t step = 0;
  std::string run_id;        // empty where no manifest of ours names one
  uint64_t bytes = 0;        // of all its files
  int64_t created_unix = 0;  // seconds; 0 unknown. For display only, never for order
  bool foreign = false;      // written by Hugging Face's Trainer: no manifest, checked by structure
  bool whole = false;
  bool unreadable = false;         // reading failed, which may be temporary
  std::string problem;             // why it is not valid
  std::vector<std::string> notes;  // files that the manifest does not know, missing checksums, ...
};

// Looks at one folder called checkpoint-<N>. Without `verify` only the manifest and the sizes are
// compared; with it every byte of every file is read and compared with its checksum. Reads only.
[[nodiscard]] CheckpointEntry inspect_checkpoint(FileSystem& files, const std::string& path,
                                                 bool verify);

// All checkpoint-<N> of a run, by rising step. A missing folder has none. Reads only.
[[nodiscard]] std::vector<CheckpointEntry> list_checkpoints(FileSystem& files,
                                                            const std::string& output_dir,
                                                            bool verify);

// The policy of resuming: the newest checkpoint, by step, whose every byte is valid. Each newer one
// that is corrupt is reported with the reason and renamed to checkpoint-<N>.bad-<k>, so that
// nothing uses it (if the folder is read-only, or the checkpoint cannot be read, it stays and is
// skipped). Notes are reported too.
//
// Returns nullopt if there never was a checkpoint. Error(kCheckpoint) if there are only corrupt
// ones (found now, or renamed to .bad earlier), Error(kIo) if one could not be read: never a silent
// restart. Requires: the output folder's lock.
[[nodiscard]] std::optional<CheckpointEntry> find_newest_good(FileSystem& files,
                                                              const std::string& output_dir,
                                                              const Report& report);

// Renames what is at output_dir/checkpoint-<step> to its next free .bad or .old name and syncs the
// folder; returns the new path. Requires: the lock.
std::string set_aside(FileSystem& files, const std::string& output_dir, int64_t step,
                      AsideReason reason);

// For `--restart` (all of them), and for resuming from an older checkpoint by name (those after its
// step): renames every checkpoint-<N> and checkpoint-<N>.bad-<k> with N > after_step to
// checkpoint-<N>.old-<k>. Deletes nothing. Returns the new paths. Requires: the lock.
std::vector<std::string> set_aside_all(FileSystem& files, const std::string& output_dir,
                                       int64_t after_step = -1);

}  // namespace finetune::checkpoint
