// SPDX-License-Identifier: MIT
#include "finetune/base/utf8.h"

namespace finetune::utf8 {
namespace {

struct Step {
  size_t length;  // bytes of the well-formed character, or of the maximal ill-formed part
  bool valid;
};

// Unicode 15, table 3-7 "Well-Formed UTF-8 Byte Sequences".
Step step(std::string_view text, size_t offset) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(offset);
  if (first < 0x80) return {1, true};
  size_t length = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else {
    return {1, false};
  }
  for (size_t i = 1; i < length; ++i) {
    if (offset + i >= text.size()) return {i, false};
    const unsigned char next = byte(offset + i);
    if (next < low || next > high) return {i, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true};
}

}  // namespace

size_t find_invalid(std::string_view text) {
  size_t offset = 0;
  while (offset < text.size()) {
    const Step s = step(text, offset);
    if (!s.valid) return offset;
    offset += s.length;
  }
  return std::string_view::npos;
}

void append(std::string& text, char32_t c) {
  const auto put = [&](char32_t value) { text += static_cast<char>(value); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

std::string replace_invalid(std::string_view text) {
  std::string result;
  size_t offset = 0;
  while (offset < text.size()) {
    const Step s = step(text, offset);
    if (s.valid) {
      result.append(text.substr(offset, s.length));
    } else {
      append(result, 0xFFFD);
    }
    offset += s.length;
  }
  return result;
}

}  // namespace finetune::utf8
