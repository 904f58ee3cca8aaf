// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

// Properties of code points as in the tokenizers package, independent of the installed Unicode
// version. byte_level.h has the white space, letters and numbers of GPT-2's pattern.
namespace finetune::tokenizer {

inline constexpr char32_t kEndOfUnicode = 0x110000;  // one past the last code point

enum CharProperty : uint8_t {
  kWordChar = 1,         // \w
  kControlChar = 2,      // removed by BertNormalizer
  kPunctuationChar = 4,  // split by Punctuation and BertPreTokenizer
  kNonspacingMark = 8,   // removed by BertNormalizer's strip_accents
  kMarkChar = 16,        // removed by StripAccents
  kNumericChar = 32,     // matched by Digits
};

[[nodiscard]] uint8_t char_properties(char32_t c);
[[nodiscard]] inline bool has_property(char32_t c, CharProperty property) {
  return (char_properties(c) & property) != 0;
}
// Whether c is one of the ideographs around which BertNormalizer puts spaces.
[[nodiscard]] bool is_chinese_char(char32_t c);
// Returns the lower case of one character; U+0130, the only one with two characters, is unchanged.
[[nodiscard]] char32_t lower_char(char32_t c);

}  // namespace finetune::tokenizer
