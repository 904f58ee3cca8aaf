// SPDX-License-Identifier: MIT
#include "finetune/base/printable.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "finetune/base/child_process.h"
#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/base/utf8.h"

namespace finetune {
namespace {

std::string hexadecimal(const char* format, unsigned value) {
  std::array<char, 16> text = {};
  (void)std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

// Whether c is a control character of C0 or C1, or DEL, except line feed and tab; or one that
// breaks a line or changes the direction of text (Unicode 15, 23.2: a line could be shown as
// another one).
bool is_control(char32_t c) {
  const bool is_direction = (c >= 0x200E && c <= 0x200F) || (c >= 0x202A && c <= 0x202E) ||
                            (c >= 0x2066 && c <= 0x2069) || c == 0x061C;
  return (c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7F && c < 0xA0) || c == 0x2028 ||
         c == 0x2029 || is_direction;
}

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::string_view valid = text.substr(0, utf8::find_invalid(text));
    for (size_t at = 0; at < valid.size();) {
      const size_t begin = at;
      const char32_t c = utf8::decode(valid, at);
      if (is_control(c)) {
        out += hexadecimal("\\u%04x", static_cast<unsigned>(c));
      } else {
        out += valid.substr(begin, at - begin);
      }
    }
    text.remove_prefix(valid.size());
    if (text.empty()) break;
    out += hexadecimal("\\x%02x", static_cast<unsigned char>(text.front()));
    text.remove_prefix(1);
  }
  return out;
}

std::string printable_line(std::string_view text) {
  std::string line;
  for (const char c : printable(text)) {
    if (c == '\n') {
      line += "\\n";
    } else if (c == '\t') {
      line += "\\t";
    } else {
      line += c;
    }
  }
  return line;
}

std::string shell_word(const std::string& text) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || c >= 0x80 ||
           std::string_view("_-./:=,+@%").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, is_plain)) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string shortened(std::string_view text, size_t most) {
  FT_CHECK(most >= 8, "room for a character at either end");
  if (text.size() <= most) return std::string(text);
  size_t begin = most / 2;
  while (begin > 0 && is_continuation(text[begin])) --begin;
  size_t end = text.size() - most / 2;
  while (end < text.size() && is_continuation(text[end])) ++end;
  return format_text("{}... {} bytes left out ...{}", std::string(text.substr(0, begin)),
                     end - begin, text.substr(end));
}

std::string listed(const std::vector<std::string>& items, size_t most, std::string_view separator) {
  std::string text;
  // One more item takes no more space than "and 1 more".
  const size_t shown = items.size() <= most + 1 ? items.size() : most;
  for (size_t i = 0; i < shown; ++i) {
    if (i > 0) text += separator;
    text += items[i];
  }
  if (shown < items.size()) text += format_text(" and {} more", items.size() - shown);
  return text;
}

namespace {

constexpr char kCommandVariable[] = "FINETUNE_COMMAND";

}  // namespace

std::string command_name() {
  const char* name = std::getenv(kCommandVariable);
  if (name == nullptr || *name == '\0') return "finetune";
  const bool has_words = std::string_view(name).starts_with("python");
  return has_words ? name : shell_word(name);
}

void set_command_name(const char* argv0) {
  const char* wrapper = std::getenv(kCommandVariable);
  std::string name = wrapper != nullptr ? wrapper : argv0 == nullptr ? "" : argv0;
  const size_t slash = name.rfind('/');
  if (slash != std::string::npos) {
    const std::string last = name.substr(slash + 1);
    std::error_code failure;
    if (std::filesystem::equivalent(find_program(last), name, failure)) name = last;
  }
  (void)::setenv(kCommandVariable, name.c_str(), 1);
}

}  // namespace finetune
