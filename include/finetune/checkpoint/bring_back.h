// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "finetune/base/clock.h"
#include "finetune/base/file_system.h"
#include "finetune/checkpoint/manifest.h"
#include "finetune/checkpoint/reader.h"

// From a mirror to the output folder, at start. Everything is verified while it is copied, and
// committed as a save is: staging folder, sync, one rename, sync.
namespace finetune::checkpoint {

struct BringBackOptions {
  std::shared_ptr<FileSystem> local = {};
  std::string output_dir = {};
  std::shared_ptr<FileSystem> files = {};  // of the mirror
  std::string mirror_dir = {};
  double patience_seconds = 60;  // how long what may pass is tried again
  Clock* clock = &Clock::steady();
  Report report = {};  // what was passed over, and why
  // Bytes of a tree that are there and that will be, after each of its files.
  std::function<void(uint64_t, uint64_t)> show = {};
};

// Waits until the mirror answers. Error(kIo) after the timeout. A missing folder is not an error,
// unless it should be on a mount that is missing.
void reach_mirror(const BringBackOptions& options);

// Copies the mirror's newest valid checkpoint to output_dir if it is newer than `newest` and of the
// same run (of any run if `newest` is nullopt), and the best one, which its state names. Corrupt
// ones are reported and renamed to .bad-<k> in the mirror; those that cannot be read before the
// timeout are skipped with the reason. Returns the step, nullopt if nothing was copied.
// Error(kCheckpoint) if the mirror has only corrupt ones and `newest` is nullopt, Error(kIo) if
// none could be read. Requires: the locks of both folders.
[[nodiscard]] std::optional<int64_t> bring_back_newest(
    const BringBackOptions& options, const std::optional<CheckpointEntry>& newest);

// Copies the finished model from the mirror if every file of it matches its checksum and it is not
// older than `newest`. Returns whether it did. If the mirror's finished model is corrupt, `damage`
// describes it.
bool bring_back_finished(const BringBackOptions& options,
                         const std::optional<CheckpointEntry>& newest,
                         std::string* damage = nullptr);

// Replaces this checkpoint of the run by the mirror's copy where that one is valid; what was there
// is renamed to .bad-<k>. Returns whether it did. Requires: the locks of both.
bool bring_back_step(const BringBackOptions& options, int64_t step, const std::string& run_id);

// The records of the files next to the checkpoints by the mirror's index; none where it cannot be
// read.
[[nodiscard]] std::map<std::string, FileRecord> indexed_files(const BringBackOptions& options);

// Takes back that the run is finished, as the output folder does.
void forget_finished(FileSystem& files, const std::string& folder);

// Copies the tree `name` (see Mirror::copy_tree) to the new folder `local_folder`, completely or
// not at all. False if the mirror's copy is incomplete.
bool bring_back_tree(const BringBackOptions& options, const std::string& name,
                     const std::string& local_folder);

}  // namespace finetune::checkpoint
