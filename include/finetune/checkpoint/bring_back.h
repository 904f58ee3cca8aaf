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

// Waits for the mirror to answer, within the patience. Error(kIo) where it does not. A folder that
// is not there is no failure, unless it is meant to lie on a mount that is missing.
void reach_mirror(const BringBackOptions& options);

// Copies the mirror's newest valid checkpoint to output_dir where it is newer than `newest`, of the
// same run; any run's where `newest` is nothing. The best one, which its state names, comes along.
// Damaged ones are reported and renamed to .bad-<k> in the mirror; what cannot be read within the
// patience is passed over, with the reason. Returns the step, nothing where there is none to take.
// Error(kCheckpoint) where the mirror holds nothing but damaged ones and `newest` is nothing,
// Error(kIo) where none could be read. Requires: the locks of both.
[[nodiscard]] std::optional<int64_t> bring_back_newest(
    const BringBackOptions& options, const std::optional<CheckpointEntry>& newest);

// Copies the finished model from the mirror where every file of it matches its checksum and it is
// not older than `newest`. Returns whether it did. Where the mirror holds a finished model that is
// damaged, `damage` says so.
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

// Copies the tree `name` (see Mirror::copy_tree) to the new folder `local_folder`, whole or not at
// all. False where the mirror does not hold it whole.
bool bring_back_tree(const BringBackOptions& options, const std::string& name,
                     const std::string& local_folder);

}  // namespace finetune::checkpoint
