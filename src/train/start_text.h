// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "train/training_run.h"

namespace finetune {

// What a session starts with, at most 15 lines: model, data, batch, device, saves, where it starts
// and how long it will take, with the place where each key was set. `seconds_left` and `cost` where
// earlier sessions measured them.
[[nodiscard]] std::vector<std::string> start_lines(const TrainingRun& run,
                                                   std::optional<double> seconds_left,
                                                   const std::optional<std::string>& cost);

// How to use the finished model: one command a line.
[[nodiscard]] std::vector<std::string> usage_lines(const TrainingRun& run);

}  // namespace finetune
