// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "finetune/base/file_system.h"
#include "finetune/checkpoint/writer.h"
#include "finetune/optim/optimizer.h"
#include "finetune/state/optimizer_torch.h"
#include "finetune/state/scheduler_file.h"

namespace finetune {

// optimizer.pt, optimizer.safetensors or both. Tensors are written as they are when the file is,
// some MiB at a time, without a copy on the CPU; where a snapshot is given, it holds them.
[[nodiscard]] std::vector<checkpoint::CheckpointFile> optimizer_checkpoint_files(
    const Optimizer& optimizer, const OptimizerRates& rates, Snapshot* snapshot = nullptr,
    StateGather* gather = nullptr);

// What these files hold, but for some KiB; before the first update, what they will hold after it.
[[nodiscard]] uint64_t optimizer_file_bytes(const Optimizer& optimizer);

struct RestoredOptimizer {
  bool found = false;  // the checkpoint has states
  bool exact = false;  // they are back bit for bit
  // What was converted or left out, a sentence each, to be printed: as a warning unless exact.
  std::vector<std::string> lines;
};

// Fills the optimizer with the states of a checkpoint folder, a tensor at a time, in place. States
// of another kind or width go through float32 moments, one parameter at a time; of the kinds that
// have no such moments (adafactor, sgd) nothing can be converted: the states start fresh, which a
// line says. Error(kData) with path and parameter for whatever does not fit.
// Requires: a fresh optimizer. After an error it must not be used.
[[nodiscard]] RestoredOptimizer restore_optimizer(Optimizer& optimizer, FileSystem& files,
                                                  const std::string& folder);

}  // namespace finetune
