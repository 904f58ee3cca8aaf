// SPDX-License-Identifier: MIT
#include "data/readers/row_encoding.h"

#include <charconv>
#include <cstdint>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/base/utf8.h"

namespace finetune {
namespace {

[[noreturn]] void refuse(const std::string& position, const std::string& what) {
  throw Error(ErrorKind::kData, position + ": " + what);
}

constexpr size_t kEscape = 6;  // characters of an escape such as \u0041

// The UTF-16 code unit of an escape at `at`; 0 if there is none.
uint32_t escaped_unit(std::string_view json, size_t at) {
  if (at + kEscape > json.size() || json[at] != '\\' || json[at + 1] != 'u') return 0;
  uint32_t unit = 0;
  const char* end = json.data() + at + kEscape;
  const auto result = std::from_chars(json.data() + at + 2, end, unit, 16);
  return result.ec == std::errc() && result.ptr == end ? unit : 0;
}

// Returns the position within a row, which may span several lines; `position` names the first.
std::string position_in_row(std::string_view text, size_t at) {
  int64_t lines = 0;
  size_t begin = 0;
  for (size_t i = 0; i < at; ++i) {
    if (text[i] != '\n' && (text[i] != '\r' || text[i + 1] == '\n')) continue;
    ++lines;
    begin = i + 1;
  }
  const std::string byte = format_text("byte {} of ", at - begin + 1);
  return byte + (lines == 0 ? "the line" : format_text("line {} of the row", lines + 1));
}

// Returns the column whose name or value is at offset `at` of an object as Python writes it.
std::string_view column_at(std::string_view text, size_t at) {
  std::string_view column;
  size_t begin = 0;  // of the string
  bool in_string = false;
  int depth = 0;
  for (size_t i = 0; i < at; ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c != '"') continue;
      in_string = false;
      if (depth == 1 && text.substr(i + 1).starts_with(':')) {
        column = text.substr(begin, i - begin);
      }
      continue;
    }
    if (c == '"') {
      in_string = true;
      begin = i + 1;
    }
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
  }
  return column;
}

}  // namespace

size_t find_lone_surrogate(std::string_view json, size_t from) {
  for (size_t i = json.find('\\', from); i != std::string_view::npos; i = json.find('\\', i)) {
    const uint32_t unit = escaped_unit(json, i);
    if (unit < 0xD800 || unit > 0xDFFF) {
      i += 2;
      continue;
    }
    const uint32_t next = escaped_unit(json, i + kEscape);
    if (unit >= 0xDC00 || next < 0xDC00 || next > 0xDFFF) return i;
    i += 2 * kEscape;
  }
  return std::string_view::npos;
}

std::string replace_lone_surrogates(std::string json) {
  for (size_t at = 0; (at = find_lone_surrogate(json, at)) != std::string::npos;) {
    json.replace(at, kEscape, "\\ufffd");
  }
  return json;
}

void check_arrow_text(std::string_view text, const std::string& position) {
  const size_t invalid = utf8::find_invalid(text);
  if (invalid == std::string_view::npos) return;
  refuse(position, "column '" + utf8::replace_invalid(column_at(text, invalid)) +
                       "' holds bytes that are no UTF-8 text; write it as text, or set "
                       "encoding_errors: replace");
}

void check_surrogates(std::string_view text, const std::string& position) {
  const size_t lone = find_lone_surrogate(text);
  if (lone == std::string_view::npos) return;
  refuse(position,
         "the escape " + std::string(text.substr(lone, kEscape)) + " at " +
             position_in_row(text, lone) +
             " is half of a character (a lone surrogate); fix the program that wrote it, or set "
             "encoding_errors: replace");
}

void check_utf8(std::string_view text, const std::string& position) {
  const size_t invalid = utf8::find_invalid(text);
  if (invalid == std::string_view::npos) return;
  static constexpr char kDigits[] = "0123456789ABCDEF";
  const auto byte = static_cast<unsigned char>(text[invalid]);
  refuse(position, std::string("invalid UTF-8 (0x") + kDigits[byte >> 4] + kDigits[byte & 15] +
                       ") at " + position_in_row(text, invalid) +
                       "; convert the file to UTF-8, for example with iconv, or set "
                       "encoding_errors: replace");
}

}  // namespace finetune
