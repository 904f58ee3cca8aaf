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

// Copies from a mirror to the output folder at startup. Everything is verified while it is copied,
// and committed like a save: staging folder, sync, one rename, sync.
namespace finetune::checkpoint {

struct RestoreOptions {
  std::shared_ptr<FileSystem> local = {};
  std::string output_dir = {};
  std::shared_ptr<FileSystem> files = {};  // of the mirror
  std::string mirror_dir = {};
  double timeout_seconds = 60;  // how long temporary failures are retried
  Clock* clock = &Clock::steady();
  Report report = {};  // receives what was skipped, and why
  // Called after each file of a tree with the bytes copied so far and in total.
  std::function<void(uint64_t, uint64_t)> show = {};
};

// Waits until the mirror responds; Error(kIo) after the timeout. A missing folder is not an error
// unless it should be on a mount that is missing.
void reach_mirror(const RestoreOptions& options);

// Calls `action`, and again after growing pauses where its failure may pass; after the timeout
// throws the last one.
void with_retries(const RestoreOptions& options, const std::function<void()>& action);

// Copies the mirror's newest valid checkpoint to output_dir if it is newer than `newest` and of the
// same run (of any run if `newest` is nullopt), and also the best checkpoint, which its state
// names. Corrupt ones are reported and renamed to .bad-<k> in the mirror; those that cannot be read
// before the timeout are skipped with the reason. Returns the step, nullopt if nothing was copied.
// Error(kCheckpoint) if the mirror has only corrupt ones and `newest` is nullopt, Error(kIo) if
// none could be read. Requires: the locks of both folders.
[[nodiscard]] std::optional<int64_t> restore_newest(const RestoreOptions& options,
                                                    const std::optional<CheckpointEntry>& newest);

// Copies the finished model from the mirror if all its files match their checksums and it is not
// older than `newest`. Returns whether it did. If the mirror's finished model is corrupt, `damage`
// describes it.
bool restore_finished(const RestoreOptions& options, const std::optional<CheckpointEntry>& newest,
                      std::string* damage = nullptr);

// Replaces this checkpoint of the run by the mirror's copy if that copy is valid; the replaced one
// is renamed to .bad-<k>. Returns whether it did. Requires: the locks of both folders.
bool restore_step(const RestoreOptions& options, int64_t step, const std::string& run_id);

// Returns the records in the mirror's index of the files next to the checkpoints; empty if the
// index cannot be read.
[[nodiscard]] std::map<std::string, FileRecord> indexed_files(const RestoreOptions& options);

// Removes the mark of a finished run in the mirror, as in the output folder.
void forget_finished(FileSystem& files, const std::string& folder);

// Copies the tree `name` (see Mirror::copy_tree) atomically to the new folder `local_folder`.
// Returns false if the mirror's copy is incomplete.
bool restore_tree(const RestoreOptions& options, const std::string& name,
                  const std::string& local_folder);

}  // namespace finetune::checkpoint
