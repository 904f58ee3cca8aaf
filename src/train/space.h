// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// Whether what a run will write fits into its folders, found out before the first step.
namespace finetune {

// Bytes of what a run writes.
struct SavedBytes {
  uint64_t scheduled =
      0;  // a checkpoint that the keys ask for (save_only_model: without optimizer)
  uint64_t automatic = 0;  // one of an early stop or of save_minutes
  uint64_t end = 0;        // the finished model and the results
};

// How many checkpoints a session may leave.
struct SavesToCome {
  bool trains = true;                           // false: only the end is left to write
  bool on_schedule = true;                      // false: save_strategy is "no"
  int64_t left = 0;                             // that the keys ask for
  std::optional<int64_t> limit = std::nullopt;  // kept at most, the best one included
};

// The output folder, or a mirror.
struct SavingFolder {
  std::string path;
  bool is_mirror = false;
  int64_t kept = 0;     // complete checkpoints of this run that it has: rotation frees them again
  uint64_t other = 0;   // additional bytes (tokenised data)
  uint64_t free = 0;    // bytes; UINT64_MAX: unknown
  uint64_t device = 0;  // folders with the same number share their free space
};

// What one folder needs beside what it has: for anything to be saved, and in the course of the run.
struct NeededBytes {
  uint64_t least = 0;
  uint64_t most = 0;
};
[[nodiscard]] NeededBytes needed_bytes(const SavingFolder& folder, const SavedBytes& bytes,
                                       const SavesToCome& saves);

// At most one of the two is not empty. `error`: not even one checkpoint (or, with save_strategy no,
// the finished model) fits. `warning`: that does, but not everything that the run may write. A
// mirror alone never stops a run that is under way (`is_resumed`): that is a warning.
struct SpaceVerdict {
  std::string error;
  std::string warning;
};
[[nodiscard]] SpaceVerdict judge_space(const std::vector<SavingFolder>& folders,
                                       const SavedBytes& bytes, const SavesToCome& saves,
                                       bool is_resumed);

// With the margin that checkpoint::write_checkpoint() asks for.
[[nodiscard]] uint64_t with_margin(uint64_t checkpoint_bytes);

}  // namespace finetune
