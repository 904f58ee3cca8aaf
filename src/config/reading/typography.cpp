// SPDX-License-Identifier: MIT
#include "config/reading/typography.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "finetune/base/text.h"
#include "finetune/base/utf8.h"

namespace finetune {
namespace {

enum class Sort { kQuote, kDash, kSpace, kPunctuation };

struct Row {
  char32_t first;
  char32_t last;
  Sort sort;
  const char* what;   // reads on after "(U+201C) is "
  const char* write;  // what to write instead
};

constexpr std::array kRows = {
    Row{0x00A0, 0x00A0, Sort::kSpace, "a no-break space", "write a space"},
    Row{0x00AB, 0x00AB, Sort::kQuote, "a typographic quote", "write \""},
    Row{0x00BB, 0x00BB, Sort::kQuote, "a typographic quote", "write \""},
    Row{0x2000, 0x200A, Sort::kSpace, "a typographic space", "write a space"},
    Row{0x200B, 0x200F, Sort::kSpace, "an invisible character", "remove it"},
    Row{0x2010, 0x2015, Sort::kDash, "a typographic dash", "write -"},
    Row{0x2018, 0x201B, Sort::kQuote, "a typographic quote", "write '"},
    Row{0x201C, 0x201F, Sort::kQuote, "a typographic quote", "write \""},
    Row{0x202F, 0x202F, Sort::kSpace, "a no-break space", "write a space"},
    Row{0x2060, 0x2060, Sort::kSpace, "an invisible character", "remove it"},
    Row{0x2212, 0x2212, Sort::kDash, "a minus sign of typesetting", "write -"},
    Row{0x3000, 0x3000, Sort::kSpace, "a full-width space", "write a space"},
    Row{0xFEFF, 0xFEFF, Sort::kSpace, "an invisible character", "remove it"},
    Row{0xFF0C, 0xFF0C, Sort::kPunctuation, "a full-width comma", "write ,"},
    Row{0xFF1A, 0xFF1A, Sort::kPunctuation, "a full-width colon", "write ':' and a space"},
};

const Row* row_of(char32_t code) {
  const auto row = std::ranges::find_if(
      kRows, [&](const Row& one) { return code >= one.first && code <= one.last; });
  return row == kRows.end() ? nullptr : &*row;
}

Typographic describe(std::string_view text, size_t offset, size_t end, const Row& row) {
  size_t at = offset;
  const char32_t code = utf8::decode(text, at);
  std::string bytes(text.substr(offset, end - offset));
  const bool is_visible = row.sort != Sort::kSpace;
  char name[16];
  std::snprintf(name, sizeof(name), "U+%04X", static_cast<unsigned>(code));
  const std::string shown = is_visible ? bytes + " (" + name + ")" : name;
  std::string advice = shown + " is " + row.what + "; " + row.write;
  return {offset, std::move(bytes), std::move(advice)};
}

template <class IsMistake>
std::optional<Typographic> find(std::string_view text, size_t from, const IsMistake& is_mistake) {
  for (size_t i = from; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const size_t begin = i;
    const Row* row = row_of(utf8::decode(text, i));
    if (row != nullptr && is_mistake(*row, begin, i)) return describe(text, begin, i, *row);
  }
  return std::nullopt;
}

std::optional<Typographic> find_in_value(const Node& value) {
  if (value.kind == Node::Kind::kPlain) {
    const std::string_view text = value.text;
    return find(text, 0, [&](const Row& row, size_t begin, size_t end) {
      const bool is_first = begin == 0;
      const bool is_last = end == text.size();
      if (row.sort == Sort::kQuote) return is_first || is_last;
      if (row.sort == Sort::kSpace) return is_first || is_last;
      // "2e–5", "–1"
      const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
      const bool is_in_number =
          !is_last && is_digit(text[end]) &&
          (is_first || (begin >= 2 && text[begin - 1] == 'e' && is_digit(text[begin - 2])));
      return row.sort == Sort::kDash && is_in_number;
    });
  }
  if (value.kind != Node::Kind::kList) return std::nullopt;
  for (const Node& item : value.items) {
    if (auto found = find_in_value(item)) return found;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Typographic> find_typographic(std::string_view text, size_t from) {
  return find(text, from, [](const Row&, size_t, size_t) { return true; });
}

std::optional<Typographic> find_typographic_in_yaml(std::string_view text) {
  for (size_t from = 0;;) {
    std::optional<Typographic> found = find_typographic(text, from);
    if (!found) return found;
    const size_t line = text.rfind('\n', found->offset) + 1;
    const std::string_view before = text.substr(line, found->offset - line);
    const size_t hash = before.find('#');
    const bool is_comment =
        hash != std::string_view::npos && (hash == 0 || before[hash - 1] == ' ');
    if (!is_comment) return found;
    from = text.find('\n', found->offset);
    if (from == std::string_view::npos) return std::nullopt;
  }
}

std::optional<Typographic> find_mistake(const Setting& setting) {
  if (auto in_key = find_typographic(setting.key)) return in_key;
  return find_in_value(setting.value);
}

std::string line_and_column(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const size_t line = before.rfind('\n') + 1;
  size_t column = 1;
  for (size_t i = line; i < offset; ++column) (void)utf8::decode(text, i);
  return format_text("line {}, column {}", std::ranges::count(before, '\n') + 1, column);
}

}  // namespace finetune
