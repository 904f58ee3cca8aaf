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

// Receives lines for the log.
using Report = std::function<void(const std::string& line)>;

struct CheckpointEntry {
  std::string path;
  int64_t step = 0;
  std::string run_id;        // empty without a manifest of this program
  uint64_t bytes = 0;        // of all its files
  int64_t created_unix = 0;  // seconds; 0: unknown. For display, never for ordering
  bool foreign = false;      // written by transformers' Trainer: no manifest, checked by structure
  bool whole = false;
  bool unreadable = false;         // reading failed, which may be temporary
  bool is_newer = false;           // a newer version of the program wrote it (NewerFormat)
  std::string problem;             // why it is not valid
  std::vector<std::string> notes;  // files that are not in the manifest, missing checksums, ...
};

// Inspects one folder named checkpoint-<N>. Without `verify` only the manifest and the sizes are
// compared; with it, every file is read and compared with its checksum. Reads only.
[[nodiscard]] CheckpointEntry inspect_checkpoint(FileSystem& files, const std::string& path,
                                                 bool verify);

// Whether the folder is what an interrupted copy to a mirror left, which does not count as damage.
[[nodiscard]] bool is_unfinished_copy(FileSystem& files, const std::string& path);

// Returns all checkpoint-<N> of a run by ascending step; none if the folder is missing. Reads only.
[[nodiscard]] std::vector<CheckpointEntry> list_checkpoints(FileSystem& files,
                                                            const std::string& output_dir,
                                                            bool verify);

// Selects the checkpoint to resume from: the one with the highest step whose every byte is valid.
// Each newer one that is corrupt is reported with the reason and renamed to checkpoint-<N>.bad-<k>,
// so that nothing uses it (if the folder is read-only, or the checkpoint cannot be read, it is only
// skipped). Notes are reported too.
//
// Returns nullopt if there never was a checkpoint. Error(kCheckpoint) if there are only corrupt
// ones (found now, or renamed to .bad earlier), Error(kIo) if one could not be read: never a silent
// restart. Requires: the output folder's lock.
[[nodiscard]] std::optional<CheckpointEntry> find_newest_good(FileSystem& files,
                                                              const std::string& output_dir,
                                                              const Report& report);

// Renames output_dir/checkpoint-<step> to its next free .bad or .old name and syncs the folder.
// Returns the new path. Requires: the lock.
std::string quarantine(FileSystem& files, const std::string& output_dir, int64_t step,
                       QuarantineReason reason);

// Renames every checkpoint-<N> and checkpoint-<N>.bad-<k> with N > after_step to
// checkpoint-<N>.old-<k>: all of them for `--restart`, the later ones when a run resumes from an
// older checkpoint by name. Deletes nothing. Returns the new paths. Requires: the lock.
std::vector<std::string> quarantine_all(FileSystem& files, const std::string& output_dir,
                                        int64_t after_step = -1);

}  // namespace finetune::checkpoint
