// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

// Formatting of messages: one format string instead of a chain of concatenations, so that a message
// can be found in the sources.
namespace finetune {

// One argument of a "{}": text or an integer. Refers to the text; use it only within one
// expression.
class TextArgument {
 public:
  template <std::convertible_to<std::string_view> Text>
  TextArgument(const Text& text) : text_(text) {}
  template <std::integral Number>
  requires(!std::same_as<Number, bool> && !std::same_as<Number, char>) TextArgument(Number number)
      : is_number_(true),
        is_negative_(number < 0),
        magnitude_(number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number)) {
  }
  // Floating-point numbers need a precision: use format_double() or format_number().
  template <std::floating_point Number>
  TextArgument(Number number) = delete;

  void append_to(std::string& text) const;

 private:
  std::string_view text_;
  bool is_number_ = false;
  bool is_negative_ = false;
  uint64_t magnitude_ = 0;
};

// A format literal with one "{}" per argument; checked at compile time.
template <class... Arguments>
class TextFormat {
 public:
  template <size_t kSize>
  consteval TextFormat(const char (&format)[kSize]) : format_(format, kSize - 1) {
    size_t count = 0;
    for (size_t i = 0; i < kSize; ++i) {
      if (format[i] != '{' && format[i] != '}') continue;
      if (format[i] == '{' && format[i + 1] == '}') {
        ++count;
      } else if (format[i + 1] != format[i]) {
        throw "a single brace: write {} for an argument, {{ or }} for a brace";
      }
      ++i;
    }
    if (count != sizeof...(Arguments)) throw "as many {} as arguments are needed";
  }
  [[nodiscard]] std::string_view get() const { return format_; }

 private:
  std::string_view format_;
};

[[nodiscard]] std::string fill_format(std::string_view format,
                                      std::span<const TextArgument> arguments);

// Formats a message: format_text("step {} of {}", step, total). Each "{}" is replaced by the next
// argument, text or an integer; "{{" and "}}" are literal braces.
template <class... Arguments>
[[nodiscard]] std::string format_text(TextFormat<std::type_identity_t<Arguments>...> format,
                                      const Arguments&... arguments) {
  if constexpr (sizeof...(Arguments) == 0) {
    return fill_format(format.get(), {});
  } else {
    const TextArgument list[] = {TextArgument(arguments)...};
    return fill_format(format.get(), list);
  }
}

// Formats one number with printf: format_number("%.1f GiB", 2.5). Requires: a format of one double.
[[nodiscard]] std::string format_number(const char* format, double number);

// Returns a size for a message: "9500000 bytes", "12.5 MB" (of 10^6 bytes), "3200 MB".
[[nodiscard]] std::string bytes_text(uint64_t bytes);

// Returns "a, b, c". listed() of printable.h limits the number of items.
[[nodiscard]] std::string join(std::span<const std::string> items,
                               std::string_view separator = ", ");
[[nodiscard]] std::string join(std::span<const int64_t> items, std::string_view separator = ", ");

// Returns `text` without the spaces, tabs and ends of lines around it.
[[nodiscard]] inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const size_t begin = std::min(text.find_first_not_of(kSpaces), text.size());
  return text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
}

// Returns `text` with its ASCII letters in lower case.
[[nodiscard]] std::string lower_case(std::string text);

// Wraps a line at spaces so that no line is longer than `columns`, one column a code point; lines
// after the first begin with `indent` spaces. A longer word is not split. Requires: a line without
// a newline.
[[nodiscard]] std::vector<std::string> wrapped_lines(std::string_view line, int64_t columns,
                                                     int64_t indent);

// Returns "[2, 3]".
[[nodiscard]] inline std::string shape_text(std::span<const int64_t> shape) {
  return "[" + join(shape) + "]";
}

}  // namespace finetune
