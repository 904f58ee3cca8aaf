// SPDX-License-Identifier: MIT
#include "tokenizer/unicode/byte_level.h"

#include "finetune/base/utf8.h"
#include "tokenizer/unicode/char_properties.h"
#include "tokenizer/unicode/general_category.h"

namespace finetune::tokenizer {
namespace {

constexpr std::array<char32_t, 256> make_byte_chars() {
  std::array<char32_t, 256> chars{};
  char32_t next = 256;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
                           (byte >= 0xAE && byte <= 0xFF);
    chars[byte] = printable ? byte : next++;
  }
  return chars;
}
constexpr std::array<char32_t, 256> kByteChars = make_byte_chars();

constexpr char32_t kEndOfByteChars = 256 + 68;
constexpr std::array<int16_t, kEndOfByteChars> make_char_bytes() {
  std::array<int16_t, kEndOfByteChars> bytes{};
  bytes.fill(-1);
  for (size_t byte = 0; byte < 256; ++byte) bytes[kByteChars[byte]] = static_cast<int16_t>(byte);
  return bytes;
}
constexpr std::array<int16_t, kEndOfByteChars> kCharBytes = make_char_bytes();

}  // namespace

CharClass char_class(char32_t code_point) {
  if (code_point >= kEndOfUnicode) return CharClass::kOther;
  const uint8_t traits = code_point < 128 ? ascii_traits()[code_point] : char_traits()[code_point];
  if ((traits & kLetterTrait) != 0) return CharClass::kLetter;
  if ((traits & kNumberTrait) != 0) return CharClass::kNumber;
  return (traits & kSpaceTrait) != 0 ? CharClass::kSpace : CharClass::kOther;
}

const std::array<char32_t, 256>& byte_chars() { return kByteChars; }

std::string to_byte_chars(std::string_view bytes) {
  std::string token;
  token.reserve(bytes.size() * 2);
  for (const char byte : bytes) utf8::append(token, kByteChars[static_cast<uint8_t>(byte)]);
  return token;
}

bool append_token_bytes(std::string_view token, std::string& bytes) {
  const size_t before = bytes.size();
  for (size_t offset = 0; offset < token.size();) {
    const char32_t c = utf8::decode(token, offset);
    if (c >= kEndOfByteChars || kCharBytes[c] < 0) {
      bytes.resize(before);
      return false;
    }
    bytes += static_cast<char>(kCharBytes[c]);
  }
  return true;
}

}  // namespace finetune::tokenizer
