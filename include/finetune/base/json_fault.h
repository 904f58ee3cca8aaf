// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace finetune {

// Where a text stops being JSON; line and column count from 1, the column in code points.
struct JsonFault {
  int64_t line = 1;
  int64_t column = 1;
  std::string found;  // "found '}', where a key in double quotes is expected"
};

// The first syntax error of a text; nothing where it is JSON.
[[nodiscard]] std::optional<JsonFault> find_json_fault(std::string_view text);

}  // namespace finetune
