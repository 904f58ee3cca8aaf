// SPDX-License-Identifier: MIT
#include "tokenizer/byte_level.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "finetune/base/utf8.h"
#include "tokenizer/char_properties.h"

namespace finetune::tokenizer {
namespace {

struct CharClassRange {
  char32_t first;
  char32_t last;
  CharClass value;
};

constexpr CharClass L = CharClass::kLetter;
constexpr CharClass N = CharClass::kNumber;
constexpr CharClass S = CharClass::kSpace;
constexpr CharClassRange kCharClassRanges[] = {
#include "tokenizer/unicode_classes.inc"
};

// Two bits a code point.
std::vector<uint8_t> make_class_table() {
  std::vector<uint8_t> table(kEndOfUnicode / 4, 0);
  for (const CharClassRange& range : kCharClassRanges) {
    for (char32_t c = range.first; c <= range.last; ++c) {
      table[c >> 2] |= static_cast<uint8_t>(static_cast<unsigned>(range.value) << (2 * (c & 3)));
    }
  }
  return table;
}

const uint8_t* class_table() {
  static const std::vector<uint8_t> kTable = make_class_table();
  return kTable.data();
}

constexpr std::array<CharClass, 128> make_ascii_classes() {
  std::array<CharClass, 128> classes{};
  for (const CharClassRange& range : kCharClassRanges) {
    for (char32_t c = range.first; c <= range.last && c < 128; ++c) classes[c] = range.value;
  }
  return classes;
}
constexpr std::array<CharClass, 128> kAsciiClasses = make_ascii_classes();

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

size_t end_of_ascii_letters(std::string_view text, size_t offset) {
  constexpr uint64_t kOnes = 0x0101010101010101u;
  constexpr uint64_t kHigh = kOnes << 7;
  while (offset + 8 <= text.size()) {
    uint64_t bytes;
    std::memcpy(&bytes, text.data() + offset, 8);
    // No byte borrows from the next one: its high bit stays where it is not below the limit.
    const uint64_t lower = bytes | (kOnes * 0x20) | kHigh;
    const uint64_t letters = (lower - kOnes * 'a') & ~(lower - kOnes * ('z' + 1)) & ~bytes & kHigh;
    const uint64_t others = letters ^ kHigh;
    if (others != 0) return offset + static_cast<size_t>(std::countr_zero(others)) / 8;
    offset += 8;
  }
  while (offset < text.size() && static_cast<uint8_t>(text[offset]) < 128 &&
         kAsciiClasses[static_cast<uint8_t>(text[offset])] == CharClass::kLetter) {
    ++offset;
  }
  return offset;
}

CharClass char_class(char32_t code_point) {
  if (code_point < 128) return kAsciiClasses[code_point];
  if (code_point >= kEndOfUnicode) return CharClass::kOther;
  return static_cast<CharClass>((class_table()[code_point >> 2] >> (2 * (code_point & 3))) & 3);
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

CharClass Gpt2Splitter::class_at(size_t offset, size_t& after) const {
  const auto byte = static_cast<uint8_t>(text_[offset]);
  if (byte < 128) {
    after = offset + 1;
    return kAsciiClasses[byte];
  }
  after = offset;
  return char_class(utf8::decode(text_, after));
}

size_t Gpt2Splitter::end_of_run(size_t offset, CharClass run) const {
  if (run == CharClass::kLetter) offset = end_of_ascii_letters(text_, offset);
  size_t after = offset;
  while (offset < text_.size() && class_at(offset, after) == run) offset = after;
  return offset;
}

// \s+(?!\S)|\s+ : a run of white space gives its last character to what follows it.
size_t Gpt2Splitter::end_of_space(size_t offset) const {
  size_t last = offset;  // where the run's last character starts
  size_t end = offset;
  size_t after = offset;
  while (end < text_.size() && class_at(end, after) == CharClass::kSpace) {
    last = end;
    end = after;
  }
  return end == text_.size() || last == offset ? end : last;
}

size_t Gpt2Splitter::contraction_at(size_t offset) const {
  if (offset + 1 >= text_.size()) return 0;
  const char first = text_[offset + 1];
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (offset + 2 >= text_.size()) return 0;
  const char second = text_[offset + 2];
  const bool two = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                   (first == 'l' && second == 'l');
  return two ? 3 : 0;
}

std::optional<std::string_view> Gpt2Splitter::next() {
  if (offset_ >= text_.size()) return std::nullopt;
  const size_t start = offset_;
  size_t end = 0;
  if (text_[start] == '\'') end = contraction_at(start);
  if (end > 0) {
    end += start;
  } else {
    size_t after = start;
    CharClass kind = class_at(start, after);
    if (text_[start] == ' ' && after < text_.size()) {
      size_t behind = after;
      const CharClass next_kind = class_at(after, behind);
      if (next_kind != CharClass::kSpace) {
        kind = next_kind;
        after = behind;
      }
    }
    end = kind == CharClass::kSpace ? end_of_space(start) : end_of_run(after, kind);
  }
  offset_ = end;
  return text_.substr(start, end - start);
}

}  // namespace finetune::tokenizer
