// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "finetune/config/fields.h"

namespace finetune {

// The key's value as JSON, secrets included.
[[nodiscard]] nlohmann::ordered_json value_of(const Field& field, const TrainingArgs& args);

// JSON as a user would write it: strings without quotes.
[[nodiscard]] std::string plain_text(const nlohmann::ordered_json& value);

// The values of a restricted key that this version has, the default first.
[[nodiscard]] std::vector<std::string> usable_values(const Field& field);

}  // namespace finetune
