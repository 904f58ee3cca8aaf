// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
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

// The key's value as JSON, secrets included.
[[nodiscard]] nlohmann::ordered_json value_of(const Field& field, const TrainingArgs& args);

// The values of a restricted key that this version has, the default first.
[[nodiscard]] std::vector<std::string> usable_values(const Field& field);

// JSON as a user would write it: strings without quotes.
[[nodiscard]] std::string plain_text(const nlohmann::ordered_json& value);

}  // namespace finetune
