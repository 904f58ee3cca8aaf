// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace finetune::utf8 {

// Offset of the first byte that is not part of well-formed UTF-8 (Unicode 15, table 3-7: no
// surrogates, no overlong forms, nothing above U+10FFFF); npos where all is well.
[[nodiscard]] size_t find_invalid(std::string_view text);

// Decodes the code point at `offset` and moves behind it. Requires: well-formed text, offset <
// size.
[[nodiscard]] char32_t decode(std::string_view text, size_t& offset);

void append(std::string& text, char32_t code_point);

// Replaces every maximal ill-formed part by U+FFFD, as Python's errors="replace" does.
[[nodiscard]] std::string replace_invalid(std::string_view text);

}  // namespace finetune::utf8
