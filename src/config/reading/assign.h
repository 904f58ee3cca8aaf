// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "config/reading/node.h"
#include "config/reading/problems.h"
#include "finetune/config/fields.h"

namespace finetune {

// Assigns the value of a setting to its key after checking type, range, choices, paths and support.
// Relative paths start from `folder`. Faults are added to `problems`, ineffective values to
// `notes`.
void assign(const Field& field, const Setting& setting, const std::string& folder,
            TrainingArgs& args, std::vector<std::string>& notes, Problems& problems);

}  // namespace finetune
