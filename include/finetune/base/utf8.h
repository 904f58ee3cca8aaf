// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace finetune::utf8 {

// Returns the offset of the first byte that is not well-formed UTF-8 (Unicode 15, table 3-7: no
// surrogates, no overlong forms, nothing above U+10FFFF); npos if the text is valid.
[[nodiscard]] size_t find_invalid(std::string_view text);

// Decodes the code point at `offset` and advances `offset`. Requires: valid UTF-8, offset < size.
[[nodiscard]] inline char32_t decode(std::string_view text, size_t& offset) {
  const auto byte = [&](size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[offset + i]));
  };
  const auto more = [&](size_t i) { return byte(i) & 0x3F; };
  const char32_t first = byte(0);
  char32_t code_point = first;
  size_t length = 1;
  if (first >= 0xF0) {
    code_point = (first & 0x07) << 18 | more(1) << 12 | more(2) << 6 | more(3);
    length = 4;
  } else if (first >= 0xE0) {
    code_point = (first & 0x0F) << 12 | more(1) << 6 | more(2);
    length = 3;
  } else if (first >= 0xC0) {
    code_point = (first & 0x1F) << 6 | more(1);
    length = 2;
  }
  offset += length;
  return code_point;
}

void append(std::string& text, char32_t code_point);

// Replaces every maximal ill-formed part by U+FFFD, as Python's errors="replace" does.
[[nodiscard]] std::string replace_invalid(std::string_view text);

}  // namespace finetune::utf8
