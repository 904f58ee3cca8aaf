// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

namespace finetune {

// Whether the text is empty or only white space according to Python's str.isspace(). Requires:
// well-formed UTF-8.
[[nodiscard]] bool is_white_space(std::string_view text);

// Returns `text` without leading white space: Python's str.lstrip().
[[nodiscard]] std::string_view without_front_space(std::string_view text);

}  // namespace finetune
