// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// Checks before the first step whether everything that a run will write fits into its folders.
namespace finetune {

// Bytes that a run writes.
struct SavedBytes {
  // A checkpoint that the keys ask for (with save_only_model without the optimizer).
  uint64_t scheduled = 0;
  uint64_t automatic = 0;  // a checkpoint of an early stop or of save_minutes
  uint64_t end = 0;        // the finished model and the results
};

// The number of checkpoints that a session may leave.
struct SavesToCome {
  bool trains = true;                           // false: only the end is left to write
  bool on_schedule = true;                      // false: save_strategy is "no"
  int64_t left = 0;                             // number of saves that the keys ask for
  std::optional<int64_t> limit = std::nullopt;  // number kept at most, including the best one
};

// The output folder, or a mirror.
struct SavingFolder {
  std::string path;
  bool is_mirror = false;
  int64_t kept = 0;       // complete checkpoints of this run; rotation frees them
  int64_t deletable = 0;  // of these, the number that a save may delete before it is complete
  uint64_t other = 0;     // bytes of other files (tokenised data)
  uint64_t free = 0;      // bytes; UINT64_MAX: unknown
  uint64_t device = 0;    // folders with the same number share their free space
};

// Bytes that a folder needs in addition: to save anything at all, and during the whole run.
struct NeededBytes {
  uint64_t least = 0;
  uint64_t most = 0;
};
[[nodiscard]] NeededBytes needed_bytes(const SavingFolder& folder, const SavedBytes& bytes,
                                       const SavesToCome& saves);

// At most one of the two is not empty. `error`: not even one checkpoint (with save_strategy no, the
// finished model) fits. `warning`: one fits, but not everything that the run may write. A full
// mirror never stops a resumed run (`is_resumed`): then it is a warning.
struct SpaceVerdict {
  std::string error;
  std::string warning;
};
[[nodiscard]] SpaceVerdict judge_space(const std::vector<SavingFolder>& folders,
                                       const SavedBytes& bytes, const SavesToCome& saves,
                                       bool is_resumed);

// Adds the margin that checkpoint::write_checkpoint() requires.
[[nodiscard]] uint64_t with_margin(uint64_t checkpoint_bytes);

}  // namespace finetune
