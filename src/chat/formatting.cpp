// SPDX-License-Identifier: MIT
#include "chat/formatting.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "chat/characters.h"
#include "chat/filters.h"

namespace finetune::chat {
namespace {

// The widest field and the most digits that a template may ask for.
constexpr int64_t kMaxWidth = 10'000;
constexpr int64_t kMaxDigits = 100;

// A format specification: [[fill]align][sign][#][0][width][,][.precision][type].
struct Spec {
  std::string fill = " ";
  char align = '\0';
  char sign = '-';
  bool is_alternate = false;
  bool has_zeros = false;
  char grouping = '\0';
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

int64_t read_number(std::string_view text, size_t& at, int64_t most) {
  int64_t number = 0;
  for (; at < text.size() && is_digit(text[at]); ++at) {
    number = number * 10 + (text[at] - '0');
    if (number > most) fail("a format asks for more than " + std::to_string(most) + " characters");
  }
  return number;
}

Spec parse_spec(std::string_view text) {
  static constexpr std::string_view kAligns = "<>=^";
  const auto is_align = [](char c) { return kAligns.find(c) != std::string_view::npos; };
  Spec spec;
  size_t at = 0;
  const size_t first = text.empty() ? 0 : next_character(text, 0);
  if (first < text.size() && is_align(text[first])) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    at = first + 1;
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[0];
    at = 1;
  }
  const auto next_is = [&](std::string_view any) {
    return at < text.size() && any.find(text[at]) != std::string_view::npos;
  };
  if (next_is("+- ")) spec.sign = text[at++];
  if (next_is("#")) spec.is_alternate = ++at > 0;
  if (next_is("0")) {
    ++at;
    spec.has_zeros = true;
    if (spec.align == '\0') {
      spec.fill = "0";
      spec.align = '=';
    }
  }
  spec.width = read_number(text, at, kMaxWidth);
  if (next_is(",_")) spec.grouping = text[at++];
  if (next_is(".")) {
    ++at;
    if (at >= text.size() || !is_digit(text[at])) fail("Format specifier missing precision");
    spec.precision = read_number(text, at, kMaxWidth);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) fail("Invalid format specifier '" + std::string(text) + "'");
  return spec;
}

TracedText padded(const TracedText& text, size_t sign, const Spec& spec, char usual_align) {
  const auto missing = static_cast<size_t>(std::max<int64_t>(spec.width - length(text.str()), 0));
  const char align = spec.align == '\0' ? usual_align : spec.align;
  const size_t before = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  const size_t inside = align == '=' ? missing : 0;
  TracedText result;
  for (size_t i = 0; i < before; ++i) result.append(spec.fill);
  result.append(text, 0, sign);
  for (size_t i = 0; i < inside; ++i) result.append(spec.fill);
  result.append(text, sign, text.size());
  for (size_t i = before + inside; i < missing; ++i) result.append(spec.fill);
  return result;
}

// Inserts `separator` between groups of digits before the point.
void group(std::string& digits, char separator, size_t size) {
  size_t end = 0;
  while (end < digits.size() && std::isxdigit(static_cast<unsigned char>(digits[end])) != 0) ++end;
  for (size_t at = end; at > size;) digits.insert(at -= size, 1, separator);
}

std::string integer_digits(uint64_t number, char type) {
  const int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
  std::array<char, 65> buffer{};
  const auto end = std::to_chars(buffer.begin(), buffer.end(), number, base).ptr;
  std::string digits(buffer.begin(), end);
  if (type == 'X')
    std::ranges::transform(digits, digits.begin(), [](char c) {
      return c >= 'a' && c <= 'f' ? static_cast<char>(c - 32) : c;
    });
  return digits;
}

// Digits of a number that is not negative, as C's printf writes them.
std::string real_digits(double number, char type, int64_t precision, bool is_alternate) {
  if (precision > kMaxDigits) fail("a format asks for more than 100 digits");
  if (!std::isfinite(number)) {
    const bool upper = type >= 'A' && type <= 'Z';
    return std::isnan(number) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf");
  }
  const std::string format = std::string("%") + (is_alternate ? "#" : "") + ".*" + type;
  std::array<char, 512> buffer{};
  const int size = std::snprintf(buffer.data(), buffer.size(), format.c_str(),
                                 static_cast<int>(precision), number);
  return {buffer.data(), static_cast<size_t>(size)};
}

TracedText with_sign(std::string digits, bool is_negative, const std::string& prefix, Spec spec,
                     char usual_align) {
  std::string sign = is_negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (spec.grouping != '\0' && spec.align == '=' && spec.fill == "0" && spec.width > 0) {
    fail("zeros before groups of digits are not available");
  }
  if (spec.grouping != '\0') group(digits, spec.grouping, prefix.empty() ? 3 : 4);
  sign += prefix;
  const size_t size = sign.size();
  return padded(TracedText(sign + digits), size, spec, usual_align);
}

TracedText formatted_integer(int64_t number, const Spec& spec) {
  if (spec.precision >= 0) fail("Precision not allowed in integer format specifier");
  const uint64_t size = number < 0 ? -static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  const bool has_prefix = spec.is_alternate && spec.type != 'd' && spec.type != '\0';
  return with_sign(integer_digits(size, spec.type), number < 0,
                   has_prefix ? std::string("0") + spec.type : "", spec, '>');
}

TracedText formatted_real(double number, const Spec& spec) {
  const bool is_negative = std::signbit(number) && !std::isnan(number);
  std::string digits;
  if (spec.type == '\0' && spec.precision < 0) {
    digits = to_text(Value(std::fabs(number))).str();
  } else if (spec.type == '\0') {
    fail("a precision needs a type, such as .2f");
  } else if (spec.type == '%') {
    digits =
        real_digits(std::fabs(number) * 100, 'f', spec.precision < 0 ? 6 : spec.precision, false) +
        "%";
  } else {
    digits = real_digits(std::fabs(number), spec.type, spec.precision < 0 ? 6 : spec.precision,
                         spec.is_alternate);
  }
  return with_sign(std::move(digits), is_negative, "", spec, '>');
}

TracedText formatted_value(const Value& value, std::string_view text) {
  if (text.empty()) return to_text(value);
  if (value.is_undefined()) fail_undefined(value);
  const Spec spec = parse_spec(text);
  const auto unknown = [&] {
    fail(std::string("Unknown format code '") + spec.type + "' for object of type '" +
         value.type_name() + "'");
  };
  if (const TracedText* string = value.text()) {
    if (spec.type != '\0' && spec.type != 's') unknown();
    if (spec.align == '=' && !spec.has_zeros)
      fail("'=' alignment not allowed in string format specifier");
    if (spec.sign != '-' || spec.is_alternate || spec.grouping != '\0')
      fail("Invalid format specifier for text");
    Spec of_text = spec;
    if (of_text.align == '=') of_text.align = '<';
    const size_t end =
        spec.precision < 0 ? string->size() : byte_offset(string->str(), spec.precision);
    return padded(string->slice(0, end), 0, of_text, '<');
  }
  if (const double* number = value.number()) {
    if (spec.type != '\0' && std::string_view("eEfFgG%").find(spec.type) == std::string_view::npos)
      unknown();
    return formatted_real(*number, spec);
  }
  if (const auto number = value.whole()) {
    if (spec.type == '\0' || std::string_view("bdoxX").find(spec.type) != std::string_view::npos) {
      if (spec.type == '\0' && value.flag() != nullptr && spec.width == 0) return to_text(value);
      return formatted_integer(*number, spec);
    }
    if (std::string_view("eEfFgG%").find(spec.type) == std::string_view::npos) unknown();
    return formatted_real(static_cast<double>(*number), spec);
  }
  fail(std::string("unsupported format string passed to ") + value.type_name() + ".__format__");
}

class Formatter {
 public:
  Formatter(const TracedText& format, const Arguments& arguments)
      : format_(format), text_(format.str()), arguments_(arguments) {}

  TracedText run() {
    TracedText result;
    for (size_t at = 0; at < text_.size();) {
      const size_t brace = std::min(text_.find_first_of("{}", at), text_.size());
      result.append(format_, at, brace);
      at = brace;
      if (at == text_.size()) break;
      if (at + 1 < text_.size() && text_[at + 1] == text_[at]) {
        result.append(format_, at, at + 1);
        at += 2;
        continue;
      }
      if (text_[at] == '}') fail("Single '}' encountered in format string");
      Limits::step();
      const size_t end = end_of_field(at);
      result.append(field(std::string_view(text_).substr(at + 1, end - at - 1)));
      at = end + 1;
    }
    return result;
  }

 private:
  [[nodiscard]] size_t end_of_field(size_t at) const {
    int depth = 0;
    for (; at < text_.size(); ++at) {
      Limits::work(1);
      if (text_[at] == '{') ++depth;
      if (text_[at] == '}' && --depth == 0) return at;
    }
    fail("expected '}' before end of string");
  }

  TracedText field(std::string_view text) {
    const size_t name_end = text.find_first_of("!:");
    Value value = member(text.substr(0, name_end));
    std::string_view rest = name_end == std::string_view::npos ? "" : text.substr(name_end);
    if (rest.starts_with('!')) {
      const char conversion = rest.size() > 1 ? rest[1] : '\0';
      if (conversion != 'r' && conversion != 's') fail("a conversion must be !r or !s");
      value = conversion == 'r' ? to_repr(value) : to_text(value);
      rest.remove_prefix(2);
      if (!rest.empty() && rest[0] != ':') fail("expected ':' after conversion specifier");
    }
    if (!rest.empty()) rest.remove_prefix(1);
    if (rest.find('{') == std::string_view::npos) return formatted_value(value, rest);
    return formatted_value(value, nested(rest));
  }

  // Replaces fields within a specification, as {:{width}}.
  std::string nested(std::string_view spec) {
    std::string result;
    while (!spec.empty()) {
      const size_t open = std::min(spec.find('{'), spec.size());
      result += spec.substr(0, open);
      spec.remove_prefix(open);
      if (spec.empty()) break;
      const size_t close = spec.find('}');
      if (close == std::string_view::npos) fail("expected '}' before end of string");
      const std::string_view inner = spec.substr(1, close - 1);
      if (inner.find_first_of("{!:") != std::string_view::npos)
        fail("a format is nested too deeply");
      result += to_text(member(inner)).str();
      if (result.size() > 1000) fail("a format specification is too long");
      spec.remove_prefix(close + 1);
    }
    return result;
  }

  Value member(std::string_view text) {
    const size_t end = std::min(text.find_first_of(".["), text.size());
    Value value = argument(text.substr(0, end));
    text.remove_prefix(end);
    while (!text.empty()) {
      Limits::step();
      if (text[0] == '.') {
        const size_t stop = std::min(text.find_first_of(".[", 1), text.size());
        const std::string name(text.substr(1, stop - 1));
        if (name.empty()) fail("Empty attribute in format string");
        // The sandbox makes Python's attributes undefined; others are not available to templates.
        value = name.starts_with('_') ? Value::undefined(name) : attribute_of(value, Value(name));
        text.remove_prefix(stop);
      } else {
        const size_t stop = text.find(']');
        if (stop == std::string_view::npos) fail("Missing ']' in format string");
        value = item_of(value, key_of(text.substr(1, stop - 1)));
        text.remove_prefix(stop + 1);
        if (!text.empty() && text[0] != '.' && text[0] != '[')
          fail("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  static Value key_of(std::string_view text) {
    int64_t number = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool is_number = !text.empty() && is_digit(text[0]) && parsed.ec == std::errc() &&
                           parsed.ptr == text.data() + text.size();
    return is_number ? Value(number) : Value(std::string(text));
  }

  Value argument(std::string_view name) {
    const Value key = key_of(name);
    if (name.empty() || key.integer() != nullptr) {
      if ((name.empty() && is_numbered_) || (!name.empty() && is_counted_)) {
        fail("cannot switch between automatic field numbering and manual field specification");
      }
      (name.empty() ? is_counted_ : is_numbered_) = true;
      const auto index = name.empty() ? next_++ : static_cast<size_t>(*key.integer());
      if (index >= arguments_.positional.size()) {
        fail("Replacement index " + std::to_string(index) +
             " out of range for positional args tuple");
      }
      return arguments_.positional[index];
    }
    for (const auto& [other, value] : arguments_.named) {
      Limits::work(4);
      if (other == name) return value;
    }
    fail("there is no argument '" + std::string(name) + "'");
  }

  const TracedText& format_;
  const std::string& text_;
  const Arguments& arguments_;
  size_t next_ = 0;
  bool is_counted_ = false;   // {}
  bool is_numbered_ = false;  // {0}
};

class PercentFormatter {
 public:
  PercentFormatter(const TracedText& format, const Value& values)
      : format_(format), text_(format.str()), values_(values) {
    if (values.list() != nullptr && values.list()->is_tuple) tuple_ = values.list();
  }

  TracedText run() {
    TracedText result;
    for (size_t at = 0; at < text_.size();) {
      const size_t percent = std::min(text_.find('%', at), text_.size());
      result.append(format_, at, percent);
      if (percent == text_.size()) break;
      at = percent + 1;
      Limits::step();
      result.append(conversion(at));
    }
    const bool used = tuple_ != nullptr
                          ? next_ >= tuple_->items.size()
                          : next_ > 0 || values_.dict() != nullptr || values_.list() != nullptr;
    if (!used) fail("not all arguments converted during string formatting");
    return result;
  }

 private:
  Value next() {
    if (tuple_ == nullptr && next_ == 0) {
      ++next_;
      return values_;
    }
    if (tuple_ == nullptr || next_ >= tuple_->items.size()) {
      fail("not enough arguments for format string");
    }
    return tuple_->items[next_++];
  }

  TracedText conversion(size_t& at) {
    std::optional<Value> named;
    if (at < text_.size() && text_[at] == '(') {
      const size_t end = find_text(text_, ")", at);
      if (end == std::string::npos) fail("incomplete format key");
      const std::string key = text_.substr(at + 1, end - at - 1);
      if (values_.dict() == nullptr) fail("format requires a mapping");
      const Value* found = find(*values_.dict(), std::string_view(key));
      if (found == nullptr) fail("there is no key '" + key + "'");
      named = *found;
      at = end + 1;
    }
    Spec spec;
    bool is_left = false;
    for (; at < text_.size(); ++at) {
      if (text_[at] == '-')
        is_left = true;
      else if (text_[at] == '0')
        spec.has_zeros = true;
      else if (text_[at] == '#')
        spec.is_alternate = true;
      else if (text_[at] == '+')
        spec.sign = '+';
      else if (text_[at] == ' ')
        spec.sign = spec.sign == '+' ? '+' : ' ';
      else
        break;
    }
    const auto number = [&](int64_t most) {
      if (at >= text_.size() || text_[at] != '*') return read_number(text_, at, most);
      ++at;
      const int64_t given = as_integer(next());
      if (given < 0) is_left = true;
      if (given > most || given < -most)
        fail("a format asks for more than " + std::to_string(most) + " characters");
      return given < 0 ? -given : given;
    };
    spec.width = number(kMaxWidth);
    if (at < text_.size() && text_[at] == '.') {
      ++at;
      spec.precision = number(kMaxWidth);
    }
    while (at < text_.size() && (text_[at] == 'l' || text_[at] == 'h' || text_[at] == 'L')) ++at;
    if (at >= text_.size()) fail("incomplete format");
    spec.type = text_[at++];
    if (spec.type == '%') return TracedText("%");
    spec.align = is_left ? '<' : '>';
    return converted(named ? *named : next(), spec, is_left);
  }

  static TracedText converted(const Value& value, Spec spec, bool is_left) {
    if (value.is_undefined()) fail_undefined(value);
    const bool is_whole = value.whole().has_value();
    const auto zeros = [&] {
      if (!spec.has_zeros || is_left) return;
      spec.fill = "0";
      spec.align = '=';
    };
    switch (spec.type) {
      case 's':
      case 'r': {
        TracedText text = spec.type == 's' ? to_text(value) : to_repr(value);
        if (spec.precision >= 0) text = text.slice(0, byte_offset(text.str(), spec.precision));
        return padded(text, 0, spec, '>');
      }
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o': {
        const bool is_decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
        int64_t number = 0;
        if (is_whole) {
          number = *value.whole();
        } else if (value.number() != nullptr && is_decimal && std::fabs(*value.number()) < 9e18) {
          number = static_cast<int64_t>(*value.number());
        } else {
          fail(std::string("%") + spec.type +
               " format: " + (is_decimal ? "a real number" : "an integer") + " is required, not " +
               value.type_name());
        }
        if (spec.precision >= 0) fail("a precision of an integer is not available");
        if (is_decimal) spec.type = 'd';
        zeros();
        return formatted_integer(number, spec);
      }
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        if (!is_whole && value.number() == nullptr) {
          fail(std::string("must be real number, not ") + value.type_name());
        }
        zeros();
        return formatted_real(is_whole ? static_cast<double>(*value.whole()) : *value.number(),
                              spec);
      }
      default:
        fail(std::string("unsupported format character '") + spec.type + "'");
    }
  }

  const TracedText& format_;
  const std::string& text_;
  const Value& values_;
  const List* tuple_ = nullptr;
  size_t next_ = 0;
};

}  // namespace

TracedText formatted(const TracedText& format, const Arguments& arguments) {
  return Formatter(format, arguments).run();
}

TracedText percent_formatted(const TracedText& format, const Value& values) {
  return PercentFormatter(format, values).run();
}

}  // namespace finetune::chat
