// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "config/node.h"
#include "config/problems.h"
#include "finetune/config/fields.h"

namespace finetune {

// Gives the key the value of a setting: type, range, choices, paths and support are checked.
// `folder` is what relative paths start from. Faults are added to `problems`, values without
// effect to `notes`.
void assign(const Field& field, const Setting& setting, const std::string& folder,
            TrainingArgs& args, std::vector<std::string>& notes, Problems& problems);

}  // namespace finetune
