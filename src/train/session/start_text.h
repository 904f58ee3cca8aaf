// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "train/session/training_run.h"

namespace finetune {

// Returns a line about each of a starting session's model, data, batch, training, device, saves,
// first step and expected duration, with the position where each key was set. Wraps them on a
// terminal. `seconds_left` and `cost`: known if earlier sessions measured them.
[[nodiscard]] std::vector<std::string> start_lines(const TrainingRun& run,
                                                   std::optional<double> seconds_left,
                                                   const std::optional<std::string>& cost);

// Returns how to use the finished model: one command per line.
[[nodiscard]] std::vector<std::string> usage_lines(const TrainingRun& run);

}  // namespace finetune
