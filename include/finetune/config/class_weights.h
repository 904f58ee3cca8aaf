// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "finetune/config/training_args.h"

namespace finetune {

// What class_weights asks for; nothing of it: all classes weigh the same.
struct ClassWeightChoice {
  bool balanced = false;
  std::vector<double> in_order = {};  // of the labels
  std::vector<std::pair<std::string, double>> by_label = {};

  [[nodiscard]] bool empty() const { return !balanced && in_order.empty() && by_label.empty(); }
};

// Throws Error(kConfig) where problem_of_class_weights() names a problem.
[[nodiscard]] ClassWeightChoice class_weights_of(const TrainingArgs& args);
// What is wrong with the key, a sentence that begins with it; nothing where it is well-formed.
[[nodiscard]] std::optional<std::string> problem_of_class_weights(const TrainingArgs& args);

}  // namespace finetune
