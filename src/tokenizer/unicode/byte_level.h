// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

// The byte-level alphabet of GPT-2 and the character classes of its splitting pattern.
namespace finetune::tokenizer {

enum class CharClass : uint8_t { kOther, kLetter, kNumber, kSpace };

// Returns the class as in the tokenizers package, independent of the installed Unicode version.
[[nodiscard]] CharClass char_class(char32_t code_point);

// Returns the printable character of each byte in vocabulary files ("Ġ" for a space).
[[nodiscard]] const std::array<char32_t, 256>& byte_chars();
[[nodiscard]] std::string to_byte_chars(std::string_view bytes);
// Appends the bytes that `token` spells; returns false and appends nothing if one of its characters
// represents no byte.
bool append_token_bytes(std::string_view token, std::string& bytes);

}  // namespace finetune::tokenizer
