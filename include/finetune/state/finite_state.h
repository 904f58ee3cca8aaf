// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/base/file_system.h"
#include "finetune/optim/optimizer.h"

namespace finetune {

// Returns the first part of a run's state that contains NaN or Inf ("the weight 'encoder.weight'");
// empty if all are finite. Reads every weight and every optimizer state once.
[[nodiscard]] std::string nonfinite_part(const Optimizer& optimizer);

// Returns which weight or optimizer state of a checkpoint contains NaN or Inf, as a clause; empty
// if all are finite, or if the files are invalid, which loading reports better. Reads every tensor,
// one at a time.
[[nodiscard]] std::string nonfinite_in_files(FileSystem& files, const std::string& folder);

}  // namespace finetune
