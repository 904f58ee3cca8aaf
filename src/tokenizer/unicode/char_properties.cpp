// SPDX-License-Identifier: MIT
#include "tokenizer/unicode/char_properties.h"

#include <utf8proc.h>

#include <vector>

namespace finetune::tokenizer {
namespace {

struct PropertyRange {
  char32_t first;
  char32_t last;
  uint8_t properties;
};

constexpr PropertyRange kPropertyRanges[] = {
#include "tokenizer/unicode/char_properties.inc"
};

std::vector<uint8_t> make_table() {
  std::vector<uint8_t> table(kEndOfUnicode, 0);
  for (const PropertyRange& range : kPropertyRanges) {
    for (char32_t c = range.first; c <= range.last; ++c) table[c] = range.properties;
  }
  return table;
}

}  // namespace

uint8_t char_properties(char32_t c) {
  static const std::vector<uint8_t> kTable = make_table();
  return c < kEndOfUnicode ? kTable[c] : uint8_t{0};
}

bool is_chinese_char(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

// Includes the capital letters of Unicode 16 and 17, which installed libraries may not support yet.
char32_t lower_char(char32_t c) {
  if (c < 128) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  if (c >= 0x10D50 && c <= 0x10D65) return c + 0x20;
  if (c >= 0x16EA0 && c <= 0x16EB8) return c + 0x1B;
  switch (c) {
    case 0x130:
      return c;
    case 0x1C89:
      return 0x1C8A;
    case 0xA7CB:
      return 0x264;
    case 0xA7CC:
      return 0xA7CD;
    case 0xA7CE:
      return 0xA7CF;
    case 0xA7D2:
      return 0xA7D3;
    case 0xA7D4:
      return 0xA7D5;
    case 0xA7DA:
      return 0xA7DB;
    case 0xA7DC:
      return 0x19B;
    default:
      return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
  }
}

}  // namespace finetune::tokenizer
