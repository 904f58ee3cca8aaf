// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "finetune/data/dataset.h"
#include "finetune/data/labels.h"
#include "finetune/task/setup.h"

namespace finetune {

// Returns the weight of each class that class_weights asks for; empty if all classes have the same
// weight. Balanced weights are n / (classes * n of the class), counted over the targets of
// `train_data`; if that is null, they are the weights of the model's training. A class that does
// not occur has weight 1. Throws Error(kConfig) for labels that do not exist.
[[nodiscard]] std::vector<double> find_class_weights(const SetupContext& context,
                                                     const LabelMap& labels,
                                                     const Dataset* train_data);

// Computes scikit-learn's compute_class_weight("balanced").
[[nodiscard]] std::vector<double> balanced_weights(const std::vector<int64_t>& counts);

}  // namespace finetune
