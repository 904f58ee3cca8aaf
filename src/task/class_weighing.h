// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "finetune/data/dataset.h"
#include "finetune/data/labels.h"
#include "finetune/task/setup.h"

namespace finetune {

// The weight of each class as class_weights asks for; empty where all weigh the same. Balanced ones
// are n / (classes * n of the class), counted over the targets of `train_data`; where that is null
// they are those of the model's training. A class that does not occur has weight 1. Throws
// Error(kConfig) for labels that there are not.
[[nodiscard]] std::vector<double> find_class_weights(const SetupContext& context,
                                                     const LabelMap& labels,
                                                     const Dataset* train_data);

// The formula of scikit-learn's compute_class_weight("balanced").
[[nodiscard]] std::vector<double> balanced_weights(const std::vector<int64_t>& counts);

}  // namespace finetune
