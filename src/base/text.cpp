// SPDX-License-Identifier: MIT
#include "finetune/base/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

namespace finetune {
namespace {

std::string joined_arguments(auto items, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) text += separator;
    TextArgument(items[i]).append_to(text);
  }
  return text;
}

}  // namespace

void TextArgument::append_to(std::string& text) const {
  if (!is_number_) {
    text += text_;
    return;
  }
  std::array<char, 20> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), magnitude_).ptr;
  if (is_negative_) text += '-';
  text.append(digits.data(), end);
}

std::string fill_format(std::string_view format, std::span<const TextArgument> arguments) {
  std::string text;
  for (size_t i = 0; i < format.size(); ++i) {
    text += format[i];
    if (format[i] != '{' && format[i] != '}') continue;
    ++i;
    if (format[i] != format[i - 1]) {  // "{}"
      text.pop_back();
      arguments.front().append_to(text);
      arguments = arguments.subspan(1);
    }
  }
  return text;
}

std::string format_number(const char* format, double number) {
  std::array<char, 400> text;
  const int size = std::snprintf(text.data(), text.size(), format, number);
  return {text.data(), static_cast<size_t>(size)};
}

std::string bytes_text(uint64_t bytes) {
  constexpr uint64_t kMegabyte = 1'000'000;
  if (bytes < 10 * kMegabyte) return std::to_string(bytes) + " bytes";
  const uint64_t tenths = bytes / (kMegabyte / 10) + (bytes % (kMegabyte / 10) >= kMegabyte / 20);
  const std::string whole = std::to_string(tenths / 10);
  return (tenths % 10 == 0 ? whole : whole + "." + std::to_string(tenths % 10)) + " MB";
}

std::string join(std::span<const std::string> items, std::string_view separator) {
  return joined_arguments(items, separator);
}

std::string join(std::span<const int64_t> items, std::string_view separator) {
  return joined_arguments(items, separator);
}

std::string lower_case(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

std::vector<std::string> wrapped_lines(std::string_view line, int64_t columns, int64_t indent) {
  const auto width = [](std::string_view text) {
    return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
  };
  std::vector<std::string> lines = {""};
  bool has_word = false;  // in the last line
  while (!line.empty()) {
    const size_t word = std::min(line.find_first_not_of(' '), line.size());
    const size_t end = std::min(line.find(' ', word), line.size());
    const bool fits = width(lines.back()) + width(line.substr(0, end)) <= columns;
    if (fits || !has_word) {
      lines.back() += line.substr(0, end);
    } else {
      lines.emplace_back(static_cast<size_t>(indent), ' ');
      lines.back() += line.substr(word, end - word);
    }
    has_word = true;
    line.remove_prefix(end);
  }
  return lines;
}

}  // namespace finetune
