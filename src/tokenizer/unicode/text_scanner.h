// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "finetune/base/utf8.h"
#include "tokenizer/unicode/general_category.h"

namespace finetune::tokenizer {

// Returns the end of the ASCII letters (or small letters) of `text` from `offset` on. Eight bytes
// at a time.
template <bool kSmallOnly = false>
[[nodiscard]] inline size_t end_of_ascii_letters(std::string_view text, size_t offset) {
  constexpr uint64_t kOnes = 0x0101010101010101u;
  constexpr uint64_t kHigh = kOnes << 7;
  while (offset + 8 <= text.size()) {
    uint64_t bytes;
    std::memcpy(&bytes, text.data() + offset, 8);
    // Bytes do not borrow from their neighbours: the high bit stays set if the byte is not below
    // the limit.
    const uint64_t lower = bytes | (kSmallOnly ? 0 : kOnes * 0x20) | kHigh;
    const uint64_t letters = (lower - kOnes * 'a') & ~(lower - kOnes * ('z' + 1)) & ~bytes & kHigh;
    const uint64_t others = letters ^ kHigh;
    if (others != 0) return offset + static_cast<size_t>(std::countr_zero(others)) / 8;
    offset += 8;
  }
  while (offset < text.size()) {
    const auto byte = static_cast<uint8_t>(kSmallOnly ? text[offset] : text[offset] | 0x20);
    if (byte < 'a' || byte > 'z') break;
    ++offset;
  }
  return offset;
}

// Reads a text character by character, for hand-written matchers. A position is the byte offset of
// a character.
class TextScanner {
 public:
  struct Char {
    uint8_t traits;
    uint8_t byte;  // its first byte
    size_t end;    // the offset after it
  };

  // Requires: well-formed UTF-8; both arguments outlive this object.
  TextScanner(std::string_view text, const uint8_t* traits) : text_(text), traits_(traits) {}

  [[nodiscard]] size_t size() const { return text_.size(); }
  [[nodiscard]] bool has(size_t at) const { return at < text_.size(); }
  // Requires: has(at).
  [[nodiscard]] Char get(size_t at) const {
    const auto byte = static_cast<uint8_t>(text_[at]);
    if (byte < 128) return {traits_[byte], byte, at + 1};
    size_t end = at;
    const char32_t c = utf8::decode(text_, end);
    return {traits_[c], byte, end};
  }
  // Returns the character and sets `after` to the position after it. Requires: has(at).
  [[nodiscard]] char32_t code_point(size_t at, size_t& after) const {
    after = at;
    return utf8::decode(text_, after);
  }
  // Whether there is a character at `at` with one of `traits`.
  [[nodiscard]] bool is(size_t at, uint8_t traits) const {
    return has(at) && (get(at).traits & traits) != 0;
  }

  // Returns the end of the characters from `at` on that have one of `traits`.
  [[nodiscard]] size_t end_of(size_t at, uint8_t traits) const {
    if ((traits & kLetterTrait) != 0) at = end_of_ascii_letters(at);
    while (has(at)) {
      const Char c = get(at);
      if ((c.traits & traits) == 0) break;
      at = c.end;
    }
    return at;
  }
  // Returns the end of the characters that have none of `traits`.
  [[nodiscard]] size_t end_of_others(size_t at, uint8_t traits) const {
    while (has(at)) {
      const Char c = get(at);
      if ((c.traits & traits) != 0) break;
      at = c.end;
    }
    return at;
  }
  [[nodiscard]] size_t end_of_small_letters(size_t at) const {
    return tokenizer::end_of_ascii_letters<true>(text_, at);
  }
  [[nodiscard]] size_t end_of_ascii_letters(size_t at) const {
    return tokenizer::end_of_ascii_letters(text_, at);
  }
  // Returns the end of the line feeds, carriage returns and, with `slashes`, slashes from `at` on.
  [[nodiscard]] size_t end_of_newlines(size_t at, bool slashes) const {
    while (has(at) && (is_newline(text_[at]) || (slashes && text_[at] == '/'))) ++at;
    return at;
  }

  // Returns the end of 's, 't, 're, 've, 'm, 'll or 'd at `at`; `at` if there is none. `any_case`
  // also accepts capital letters and U+017F, the long s.
  [[nodiscard]] size_t end_of_contraction(size_t at, bool any_case) const {
    if (at + 1 >= text_.size() || text_[at] != '\'') return at;
    const auto letter = [&](size_t position) {
      const char c = position < text_.size() ? text_[position] : '\0';
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    };
    const char first = letter(at + 1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
    if (any_case && text_.substr(at + 1, 2) == "\xC5\xBF") return at + 3;
    const char second = letter(at + 2);
    const bool two =
        ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l');
    return two ? at + 3 : at;
  }

  // Returns the end of \s*[\r\n]+|\s+(?!\S)|\s+ with `newlines`, else of \s+(?!\S)|\s+: white space
  // up to its last newline, or all but the last character if another character follows. Requires:
  // white space at `at`.
  [[nodiscard]] size_t end_of_space(size_t at, bool newlines) const {
    size_t newline = at;  // after the last newline
    size_t last = at;     // position of the last character
    size_t end = at;
    while (has(end)) {
      const Char c = get(end);
      if ((c.traits & kSpaceTrait) == 0) break;
      last = end;
      end = c.end;
      if (is_newline(static_cast<char>(c.byte))) newline = end;
    }
    if (newlines && newline > at) return newline;
    return end == text_.size() || last == at ? end : last;
  }

  [[nodiscard]] static bool is_newline(char byte) { return byte == '\n' || byte == '\r'; }

 private:
  std::string_view text_;
  const uint8_t* traits_;
};

}  // namespace finetune::tokenizer
