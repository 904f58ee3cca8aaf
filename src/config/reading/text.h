// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "finetune/config/fields.h"

namespace finetune {

// Returns a key's value as one line of YAML that reads back to it.
[[nodiscard]] std::string to_yaml(const Field& field, const nlohmann::ordered_json& value);

// Returns "true or false", "whole number", "number", "text", "list" or "mapping".
[[nodiscard]] std::string type_name(const Field& field);

// Describes range, choices and support in one or more sentences; empty if unrestricted.
[[nodiscard]] std::string limits_of(const Field& field);

// Wraps `text` to lines of at most `width` columns, each beginning with `indent`.
[[nodiscard]] std::string wrap(std::string_view text, std::string_view indent, size_t width);

}  // namespace finetune
