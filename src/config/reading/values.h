// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "finetune/config/fields.h"

namespace finetune {

// Returns the key's value as JSON, including secrets.
[[nodiscard]] nlohmann::ordered_json value_of(const Field& field, const TrainingArgs& args);

// Returns JSON as a user would write it: strings without quotes.
[[nodiscard]] std::string plain_text(const nlohmann::ordered_json& value);

// Returns the supported values of a restricted key, the default first.
[[nodiscard]] std::vector<std::string> usable_values(const Field& field);

}  // namespace finetune
