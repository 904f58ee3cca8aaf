// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/columns/row.h"
#include "finetune/data/labels.h"

namespace finetune {

// Returns an integer that fits; if not all values have types, it may be written as text.
[[nodiscard]] std::optional<int64_t> integer_of(const Row::Json& value, bool typed);

// Returns a label's id; kIgnoredLabel for -1 and -100 if that is not a name. `column` is for
// messages.
[[nodiscard]] int64_t label_number(const LabelMap& labels, const Row::Json& value, const Row& row,
                                   const std::string& column);

// Returns text, decimal number, "True" or "False"; nullopt if the value cannot be a label.
[[nodiscard]] std::optional<std::string> label_name(const Row::Json& value);

// Returns a finite number in float's range. If all values are text, it may be written as text.
[[nodiscard]] float number_of(const Row::Json& value, const Row& row, const std::string& column);

}  // namespace finetune
