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
  bool unreadable = false;         // not whole because reading failed, which may pass
  std::string problem;             // why it is not whole
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

// The policy of resuming: the newest checkpoint, by step, of which every byte is as it was written.
// Each newer one that is not whole is reported with the reason and renamed to
// checkpoint-<N>.bad-<k>, so that nothing takes it for good (where the folder is read-only, or the
// checkpoint could not even be read, it stays and is passed over). Notes are reported too.
//
// Nothing where no checkpoint was ever there. Error(kCheckpoint) where only damaged ones are (now
// or set aside as .bad by an earlier start), Error(kIo) where one could not be read: never a silent
// restart. Requires: the output folder's
// lock.
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
