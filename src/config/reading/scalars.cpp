// SPDX-License-Identifier: MIT
#include "config/reading/scalars.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "finetune/base/json.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view without_sign(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  return text;
}

size_t count_digits(std::string_view text) {
  size_t count = 0;
  while (count < text.size() && is_digit(text[count])) ++count;
  return count;
}

bool has_leading_zero(std::string_view digits) { return digits.size() > 1 && digits[0] == '0'; }

bool looks_like_integer(std::string_view text) {
  const std::string_view digits = without_sign(text);
  return !digits.empty() && count_digits(digits) == digits.size();
}

// [sign] digits [. digits] [e [sign] digits], with a digit on at least one side of the point.
bool looks_like_number(std::string_view text) {
  std::string_view rest = without_sign(text);
  const size_t whole = count_digits(rest);
  if (has_leading_zero(rest.substr(0, whole))) return false;
  rest.remove_prefix(whole);
  size_t fraction = 0;
  if (!rest.empty() && rest[0] == '.') {
    rest.remove_prefix(1);
    fraction = count_digits(rest);
    rest.remove_prefix(fraction);
  }
  if (whole + fraction == 0) return false;
  if (rest.empty()) return true;
  if (rest[0] != 'e' && rest[0] != 'E') return false;
  const std::string_view exponent = without_sign(rest.substr(1));
  return !exponent.empty() && count_digits(exponent) == exponent.size();
}

// Returns advice for text that was possibly meant as a number.
std::string number_advice(std::string_view text) {
  const std::string_view digits = without_sign(text);
  if (digits.empty()) return "";
  if (is_digit(digits[0]) && digits.find('_') != std::string_view::npos) {
    return " (write the digits without '_')";
  }
  if (count_digits(digits) == digits.size() && has_leading_zero(digits)) {
    return " (a leading zero is ambiguous: leave it out)";
  }
  if (digits.starts_with("0x") || digits.starts_with("0o") || digits.starts_with("0b")) {
    return " (write it in decimal)";
  }
  if (is_digit(digits[0]) && digits.find(',') != std::string_view::npos) {
    return " (write a decimal point, and no separators)";
  }
  return "";
}

std::string quoted_advice(const Node& node) {
  const bool number = node.kind == Node::Kind::kQuoted && looks_like_number(node.text);
  return number ? " (leave out the quotes)" : "";
}

std::string null_advice(const Node& node) {
  return node.kind == Node::Kind::kPlain && node.text == "None" ? " (write null instead of None)"
                                                                : "";
}

}  // namespace

bool is_null(const Node& node) {
  if (node.kind == Node::Kind::kNull) return true;
  return node.kind == Node::Kind::kPlain &&
         (node.text.empty() || node.text == "~" || node.text == "null" || node.text == "Null" ||
          node.text == "NULL");
}

std::string show(const Node& node) {
  if (is_null(node)) return "null";
  if (node.kind == Node::Kind::kList) return "a list";
  if (node.kind == Node::Kind::kMap) return "a mapping";
  constexpr size_t kLongest = 60;
  if (node.text.size() <= kLongest) return "'" + node.text + "'";
  size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(node.text[end]) & 0xC0U) == 0x80U) --end;
  return "'" + node.text.substr(0, end) + "...'";
}

Parsed<bool> parse_bool(const Node& node) {
  if (node.kind == Node::Kind::kPlain) {
    if (node.text == "true" || node.text == "True" || node.text == "TRUE") return {true, ""};
    if (node.text == "false" || node.text == "False" || node.text == "FALSE") return {false, ""};
  }
  std::string expected = "must be true or false, not " + show(node);
  if (node.is_scalar()) {
    for (const std::string_view word : {"yes", "Yes", "YES", "on", "On", "ON", "1", "y", "Y"}) {
      if (node.text == word) expected += " (write true)";
    }
    for (const std::string_view word : {"no", "No", "NO", "off", "Off", "OFF", "0", "n", "N"}) {
      if (node.text == word) expected += " (write false)";
    }
    if (node.kind == Node::Kind::kQuoted && (node.text == "true" || node.text == "false")) {
      expected += " (leave out the quotes)";
    }
  }
  return {std::nullopt, expected};
}

Parsed<int64_t> parse_integer(const Node& node) {
  std::string expected = "must be a whole number, not " + show(node);
  if (node.kind != Node::Kind::kPlain) return {std::nullopt, expected + quoted_advice(node)};
  const std::string_view digits = without_sign(node.text);
  if (!looks_like_integer(node.text) || has_leading_zero(digits)) {
    return {std::nullopt, expected + number_advice(node.text) + null_advice(node)};
  }
  const char* begin = node.text.data() + (node.text[0] == '+' ? 1 : 0);
  int64_t value = 0;
  const auto result = std::from_chars(begin, node.text.data() + node.text.size(), value);
  if (result.ec != std::errc()) return {std::nullopt, expected + " (it does not fit in 64 bits)"};
  return {value, ""};
}

Parsed<double> parse_double(const Node& node) {
  std::string expected = "must be a number, not " + show(node);
  if (node.kind != Node::Kind::kPlain) return {std::nullopt, expected + quoted_advice(node)};
  if (!looks_like_number(node.text)) {
    return {std::nullopt, expected + number_advice(node.text) + null_advice(node)};
  }
  const char* begin = node.text.data() + (node.text[0] == '+' ? 1 : 0);
  double value = 0;
  const auto result = std::from_chars(begin, node.text.data() + node.text.size(), value);
  if (result.ec != std::errc() || !std::isfinite(value)) {
    return {std::nullopt, expected + " (it is beyond what a double can hold)"};
  }
  return {value, ""};
}

Parsed<std::string> parse_string(const Node& node) {
  if (!node.is_scalar() || is_null(node)) {
    return {std::nullopt, "must be text, not " + show(node)};
  }
  if (node.text.find('\0') != std::string::npos) {
    return {std::nullopt, "must not hold a NUL character"};
  }
  return {node.text, ""};
}

namespace {

// Recursion is bounded by kMaxConfigDepth.
nlohmann::ordered_json to_json_value(const Node& node) {
  if (is_null(node)) return nullptr;
  if (node.kind == Node::Kind::kQuoted) return node.text;
  if (node.kind == Node::Kind::kList) {
    Json list = Json::array();
    for (const Node& item : node.items) list.push_back(to_json_value(item));
    return list;
  }
  if (node.kind == Node::Kind::kMap) {
    Json map = Json::object();
    for (size_t i = 0; i < node.items.size(); ++i) {
      map[node.names[i]] = to_json_value(node.items[i]);
    }
    return map;
  }
  if (const Parsed<bool> flag = parse_bool(node); flag.value) return *flag.value;
  if (const Parsed<int64_t> integer = parse_integer(node); integer.value) return *integer.value;
  if (const Parsed<double> number = parse_double(node); number.value) return *number.value;
  return node.text;
}

}  // namespace

std::string to_json_text(const Node& node) { return to_json_value(node).dump(); }

}  // namespace finetune
