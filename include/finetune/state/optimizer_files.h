// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "finetune/base/file_system.h"
#include "finetune/checkpoint/writer.h"
#include "finetune/optim/optimizer.h"
#include "finetune/state/optimizer_torch.h"
#include "finetune/state/scheduler_file.h"

namespace finetune {

// Returns optimizer.pt, optimizer.safetensors or both. Tensors are read when the file is written,
// some MiB at a time, without a copy on the CPU; with a snapshot, their current values are written.
[[nodiscard]] std::vector<checkpoint::CheckpointFile> optimizer_checkpoint_files(
    const Optimizer& optimizer, const OptimizerRates& rates, Snapshot* snapshot = nullptr,
    StateGather* gather = nullptr);

// Returns the size of these files to within some KiB; before the first update, their size after it.
[[nodiscard]] uint64_t optimizer_file_bytes(const Optimizer& optimizer);

struct RestoredOptimizer {
  bool found = false;  // the checkpoint has optimizer states
  bool exact = false;  // they were restored bit for bit
  // What was converted or skipped, one sentence each, to be printed: as warnings unless exact.
  std::vector<std::string> lines;
};

// Fills the optimizer with the states of a checkpoint folder, one tensor at a time, in place.
// States of another kind or width are converted through float32 moments, one parameter at a time.
// Kinds without moments (adafactor, sgd) cannot be converted: the states start from zero, and a
// line says so. Throws Error(kData) with path and parameter for anything that does not match.
// Requires: an optimizer without state. After an error it must not be used.
[[nodiscard]] RestoredOptimizer restore_optimizer(Optimizer& optimizer, FileSystem& files,
                                                  const std::string& folder);

// Where the optimizer states of a checkpoint folder contain NaN or Inf.
struct NonfiniteState {
  std::string path, tensor;  // optimizer.pt does not name its tensors: empty
};
[[nodiscard]] std::optional<NonfiniteState> find_nonfinite_state(FileSystem& files,
                                                                 const std::string& folder);

}  // namespace finetune
