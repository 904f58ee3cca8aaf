// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "finetune/config/fields.h"

namespace finetune {

// A key's value as one line of YAML that reads back to it.
[[nodiscard]] std::string to_yaml(const Field& field, const nlohmann::ordered_json& value);

// "true or false", "whole number", "number", "text", "list", "mapping".
[[nodiscard]] std::string type_name(const Field& field);

// Range, choices and support in a sentence or more; empty where there is nothing to say.
[[nodiscard]] std::string limits_of(const Field& field);

// `text` in lines of at most `width` columns, each beginning with `indent`.
[[nodiscard]] std::string wrap(std::string_view text, std::string_view indent, size_t width);

}  // namespace finetune
