// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "config/node.h"
#include "config/problems.h"
#include "finetune/config/fields.h"

namespace finetune {

// Adds a problem where the key's value is one that this version refuses, a note where it has no
// effect.
void check_support(const Field& field, const Setting& setting, const TrainingArgs& args,
                   std::vector<std::string>& notes, Problems& problems);

}  // namespace finetune
