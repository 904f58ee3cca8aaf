// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// The byte-level alphabet of GPT-2 and its splitting pattern, written by hand: no regular
// expression is ever taken from a file.
namespace finetune::tokenizer {

enum class CharClass : uint8_t { kOther, kLetter, kNumber, kSpace };

// As the pattern of the tokenizers package sees it, whatever Unicode version is installed here.
[[nodiscard]] CharClass char_class(char32_t code_point);

// Where the ASCII letters end that `text` has from `offset` on. Eight bytes at a time.
[[nodiscard]] size_t end_of_ascii_letters(std::string_view text, size_t offset);

// The printable character that stands for each byte in vocabulary files ("Ġ" for a space).
[[nodiscard]] const std::array<char32_t, 256>& byte_chars();
[[nodiscard]] std::string to_byte_chars(std::string_view bytes);
// Appends the bytes that `token` spells; false (and nothing appended) where a character of it
// stands for no byte.
bool append_token_bytes(std::string_view token, std::string& bytes);

// Cuts text by
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// Requires: well-formed UTF-8.
class Gpt2Splitter {
 public:
  explicit Gpt2Splitter(std::string_view text) : text_(text) {}
  // The next piece; nothing at the end. The pieces cover the text without gaps.
  [[nodiscard]] std::optional<std::string_view> next();

 private:
  [[nodiscard]] size_t contraction_at(size_t offset) const;
  [[nodiscard]] CharClass class_at(size_t offset, size_t& after) const;
  [[nodiscard]] size_t end_of_run(size_t offset, CharClass run) const;
  [[nodiscard]] size_t end_of_space(size_t offset) const;

  std::string_view text_;
  size_t offset_ = 0;
};

}  // namespace finetune::tokenizer
