// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "finetune/base/file_system.h"
#include "finetune/checkpoint/reader.h"
#include "finetune/checkpoint/writer.h"

namespace finetune::checkpoint {

struct RotationPolicy {
  std::optional<int64_t> save_total_limit = std::nullopt;  // unset or below 1: keep all
  std::optional<int64_t> best_step = std::nullopt;         // never deleted, and not counted
  // Steps of saves outside the schedule; the newest of them is kept in addition to the limit.
  std::vector<int64_t> automatic_steps = {};
};

// Returns the steps to delete, oldest first: scheduled checkpoints beyond the newest
// save_total_limit, and all automatic ones but the newest. If that would leave only one of several,
// the newest deleted one is kept too, unless the limit is 1. Requires: ascending steps.
[[nodiscard]] std::vector<int64_t> steps_to_delete(const std::vector<int64_t>& existing,
                                                   const RotationPolicy& policy);

// Applies the policy to the valid checkpoints of run `run_id`; those of other runs and corrupt ones
// are neither counted nor deleted. Call it only after a commit. A checkpoint is renamed before its
// first file is deleted, so that none is ever incomplete under its name. Also deletes what an
// earlier call or save failed to delete. Failures are reported, never thrown. Returns the deleted
// steps. Requires: the lock.
std::vector<int64_t> rotate(FileSystem& files, const std::string& output_dir,
                            const std::string& run_id, const RotationPolicy& policy,
                            const Report& report);

// At the end of a run: deletes the automatic checkpoints that a later scheduled one supersedes, but
// the best one, so that a run that was interrupted leaves those that the unbroken run leaves.
// Failures are reported, never thrown. Returns the deleted steps. Requires: the lock.
std::vector<int64_t> remove_automatic(FileSystem& files, const std::string& output_dir,
                                      const std::string& run_id, const RotationPolicy& policy,
                                      const Report& report);

// Returns the steps that make_room() would delete. Throws Error(kIo).
[[nodiscard]] std::vector<int64_t> deletable_before(FileSystem& files,
                                                    const std::string& output_dir,
                                                    const CheckpointIdentity& identity,
                                                    const RotationPolicy& policy);

// For a save that found no space: deletes now what rotation would delete after it. The
// newest checkpoint is always kept, and must be valid in every byte, else nothing is deleted.
// Failures are reported, never thrown. Returns the deleted steps. Requires: the lock.
std::vector<int64_t> make_room(FileSystem& files, const std::string& output_dir,
                               const CheckpointIdentity& identity, const RotationPolicy& policy,
                               const Report& report);

// Removes what killed saves and rotations left behind: staging and trash folders. Failures are
// reported, never thrown. Requires: the lock.
void sweep_stale(FileSystem& files, const std::string& output_dir, const Report& report);

}  // namespace finetune::checkpoint
