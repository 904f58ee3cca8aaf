// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "finetune/config/data_args.h"
#include "finetune/config/json_text.h"

namespace finetune {

// An entry of train_file that has updates of its samples alone.
struct TrainingSet {
  std::string name;
  std::optional<std::string> loss_type = {};
  JsonText loss_kwargs = {};
};

// Returns train_file_sets, in the order of train_file; empty if updates are of all samples. Throws
// Error(kConfig) without the key's location.
[[nodiscard]] std::vector<TrainingSet> training_sets(const DataArgs& args);

}  // namespace finetune
