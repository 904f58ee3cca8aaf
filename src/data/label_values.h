// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/row.h"
#include "finetune/data/labels.h"

namespace finetune {

// A label's number; kIgnoredLabel for -1 that is no name. `column` is for messages.
[[nodiscard]] int64_t label_number(const LabelMap& labels, const Row::Json& value, const Row& row,
                                   const std::string& column);

// Text, decimal number, "True" or "False"; nothing for what can be no label.
[[nodiscard]] std::optional<std::string> label_name(const Row::Json& value);

// A finite number that a float holds. Where all is text it may be written as text.
[[nodiscard]] float number_of(const Row::Json& value, const Row& row, const std::string& column);

}  // namespace finetune
