// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "finetune/chat/traced_text.h"

// Python's view of text: str methods count and test code points.
namespace finetune::chat {

using Texts = Counted<TracedText>;

// str.isspace() of one character.
[[nodiscard]] bool is_space(char32_t c);

// The range of `text` without white space, or without the characters of `chars`, at its ends.
enum class Ends { kBoth, kLeft, kRight };
[[nodiscard]] ByteRange stripped(std::string_view text, Ends ends,
                                 const std::string* chars = nullptr);

// Returns the offset after the character at `offset`. Requires: offset < size.
[[nodiscard]] size_t next_character(std::string_view text, size_t offset);
// Number of code points.
[[nodiscard]] int64_t length(std::string_view text);
// Returns the byte offset of code point `index`, at most text.size().
[[nodiscard]] size_t byte_offset(std::string_view text, int64_t index);

// Offset of the first `part` at or after `from`, or of the last one; npos if there is none. In
// linear time, or counted as work.
[[nodiscard]] size_t find_text(std::string_view text, std::string_view part, size_t from = 0);
[[nodiscard]] size_t find_last_text(std::string_view text, std::string_view part);

enum class Case { kUpper, kLower, kTitle, kCapitalized };
// str.upper(), lower(), title() and capitalize().
[[nodiscard]] TracedText with_case(const TracedText& text, Case wanted);

enum class Class { kAlpha, kDigit, kAlnum, kSpace, kUpper, kLower };
// str.isalpha() and its like.
[[nodiscard]] bool is_all(std::string_view text, Class wanted);

}  // namespace finetune::chat
