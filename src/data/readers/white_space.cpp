// SPDX-License-Identifier: MIT
#include "data/readers/white_space.h"

#include "finetune/base/utf8.h"

namespace finetune {
namespace {

// Unicode 15: category Zs, or bidirectional class WS, B or S.
bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

}  // namespace

bool is_white_space(std::string_view text) { return without_front_space(text).empty(); }

std::string_view without_front_space(std::string_view text) {
  size_t begin = 0;
  for (size_t offset = 0; offset < text.size(); begin = offset) {
    if (!is_space(utf8::decode(text, offset))) break;
  }
  return text.substr(begin);
}

}  // namespace finetune
