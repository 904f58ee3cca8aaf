// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "finetune/config/task_args.h"

namespace finetune {

// The parsed key class_weights; if empty, all classes have equal weights.
struct ClassWeightChoice {
  bool balanced = false;
  std::vector<double> in_order = {};  // by label id
  std::vector<std::pair<std::string, double>> by_label = {};

  [[nodiscard]] bool empty() const { return !balanced && in_order.empty() && by_label.empty(); }
};

// Throws Error(kConfig) if problem_of_class_weights() returns a problem.
[[nodiscard]] ClassWeightChoice class_weights_of(const TaskArgs& args);
// Returns what is wrong with the key, as a sentence that begins with it; nullopt if it is
// well-formed.
[[nodiscard]] std::optional<std::string> problem_of_class_weights(const TaskArgs& args);

}  // namespace finetune
