// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <vector>

#include "config/node.h"
#include "config/problems.h"
#include "finetune/config/training_args.h"

namespace finetune {

// "train_file: [{path: a.txt, weight: 2}, b.txt]" as the two keys that it stands for: the paths,
// and train_file_weights (1 where an entry names none). Settings of other forms stay as they are.
[[nodiscard]] std::vector<Setting> split_weighted_files(const std::vector<Setting>& settings,
                                                        Problems& problems);

// What is wrong with train_file_weights beside the other keys; nothing where all is well.
[[nodiscard]] std::optional<std::string> problem_of_weights(const TrainingArgs& args);

}  // namespace finetune
