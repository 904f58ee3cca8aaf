// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

namespace finetune {

// Nothing, or only what Python's str.isspace() calls white space. Requires: well-formed UTF-8.
[[nodiscard]] bool is_white_space(std::string_view text);

// `text` from its first character on that is none of these: Python's str.lstrip().
[[nodiscard]] std::string_view without_front_space(std::string_view text);

}  // namespace finetune
