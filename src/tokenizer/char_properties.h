// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

// What the tokenizers package thinks of a code point, whatever Unicode version is installed here.
// White space, letters and numbers of GPT-2's pattern: byte_level.h.
namespace finetune::tokenizer {

inline constexpr char32_t kEndOfUnicode = 0x110000;  // one past the last code point

enum CharProperty : uint8_t {
  kWordChar = 1,         // \w
  kControlChar = 2,      // BertNormalizer takes it away
  kPunctuationChar = 4,  // Punctuation, BertPreTokenizer
  kNonspacingMark = 8,   // BertNormalizer's strip_accents
  kMarkChar = 16,        // StripAccents
  kNumericChar = 32,     // Digits
};

[[nodiscard]] uint8_t char_properties(char32_t c);
[[nodiscard]] inline bool has_property(char32_t c, CharProperty property) {
  return (char_properties(c) & property) != 0;
}
// The ideographs that BertNormalizer puts spaces around.
[[nodiscard]] bool is_chinese_char(char32_t c);
// The lower case of one character; U+0130, the only one that becomes two, stays as it is.
[[nodiscard]] char32_t lower_char(char32_t c);

}  // namespace finetune::tokenizer
