// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <vector>

#include "config/reading/node.h"
#include "config/reading/problems.h"
#include "finetune/config/training_args.h"

namespace finetune {

// Splits "train_file: [{path: a.txt, weight: 2}, b.txt]" into two keys: the paths, and
// train_file_weights (1 for an entry without weight); and "train_file: {a: {path: a.jsonl,
// loss_type: CoSENTLoss}, b: b.jsonl}" into the paths and train_file_sets. Other forms are
// unchanged.
[[nodiscard]] std::vector<Setting> split_train_file(const std::vector<Setting>& settings,
                                                    Problems& problems);

// Return conflicts of train_file_weights or train_file_sets with other keys; nullopt if there are
// none.
[[nodiscard]] std::optional<std::string> problem_of_weights(const TrainingArgs& args);
[[nodiscard]] std::optional<std::string> problem_of_sets(const TrainingArgs& args);

}  // namespace finetune
