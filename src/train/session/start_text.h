// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "train/session/training_run.h"

namespace finetune {

// Returns at most 15 lines about a starting session: model, data, batch, device, saves, first step
// and expected duration, with the position where each key was set. `seconds_left` and `cost`: known
// if earlier sessions measured them.
[[nodiscard]] std::vector<std::string> start_lines(const TrainingRun& run,
                                                   std::optional<double> seconds_left,
                                                   const std::optional<std::string>& cost);

// Returns how to use the finished model: one command per line.
[[nodiscard]] std::vector<std::string> usage_lines(const TrainingRun& run);

}  // namespace finetune
