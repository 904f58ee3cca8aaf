// SPDX-License-Identifier: MIT
#include "config/reading/text.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "config/keys/words.h"
#include "config/reading/scalars.h"
#include "config/reading/values.h"
#include "finetune/base/json.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

bool is_plain_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.' || c == '/' || c == '~';
}

// Whether unquoted text has the same meaning for this program and for any YAML reader.
bool is_plain(const std::string& text) {
  if (text.empty() || text == "~" || text[0] == '-' || text[0] == '.') return false;
  for (const char c : text) {
    if (!is_plain_char(c)) return false;
  }
  const Node node{.kind = Node::Kind::kPlain, .text = text};
  return !is_null(node) && !parse_bool(node).value && !parse_double(node).value;
}

std::string number(double value) {
  const bool whole = value == std::floor(value) && std::abs(value) < 1e15;
  return whole ? std::to_string(static_cast<int64_t>(value)) : format_double(value);
}

struct TypeName {
  std::string operator()(bool TrainingArgs::*) const { return "true or false"; }
  std::string operator()(int64_t TrainingArgs::*) const { return "whole number"; }
  std::string operator()(double TrainingArgs::*) const { return "number"; }
  std::string operator()(std::string TrainingArgs::*) const { return "text"; }
  std::string operator()(std::optional<bool> TrainingArgs::*) const { return "true or false"; }
  std::string operator()(std::optional<int64_t> TrainingArgs::*) const { return "whole number"; }
  std::string operator()(std::optional<double> TrainingArgs::*) const { return "number"; }
  std::string operator()(std::optional<std::string> TrainingArgs::*) const { return "text"; }
  std::string operator()(std::vector<std::string> TrainingArgs::*) const { return "list"; }
  std::string operator()(JsonText TrainingArgs::*) const { return "mapping"; }
  std::string operator()(const ForeignKey& key) const {
    return std::visit(
        [&]<class T>(const T&) { return (*this)(static_cast<T TrainingArgs::*>(nullptr)); },
        key.initial);
  }
};

std::string range_of(const Range& range) {
  const bool low = std::isfinite(range.min);
  // Very high maxima only prevent overflow and do not help a reader.
  const bool high = std::isfinite(range.max) && range.max <= 1024;
  std::string text;
  if (low) text = (range.above_min ? "above " : "at least ") + number(range.min);
  if (high) {
    text += (low ? ", " : "") + std::string(range.below_max ? "below " : "at most ") +
            number(range.max);
  }
  return text;
}

}  // namespace

std::string to_yaml(const Field& field, const Json& value) {
  if (value.is_array() && value.size() == 1 && !field.spec.list_only) {
    return to_yaml(field, value.front());
  }
  if (value.is_string()) {
    const std::string text = value.get<std::string>();
    return is_plain(text) ? text : value.dump();
  }
  if (value.is_number_float()) return format_double(value.get<double>());
  // JSON is valid as YAML's flow lists and mappings.
  return value.dump();
}

std::string type_name(const Field& field) { return std::visit(TypeName{}, field.member); }

std::string limits_of(const Field& field) {
  const FieldSpec& spec = field.spec;
  std::string text;
  const auto add = [&](const std::string& sentence) {
    text += (text.empty() ? "" : " ") + sentence + ".";
  };
  // If the list of choices is long (41 optimizers), only the usable ones are listed.
  const bool usable_only = !spec.available.empty() && spec.choices.size() > 6;
  if (!spec.choices.empty() && !usable_only && spec.path == PathKind::kNone) {
    add("One of: " + join(spec.choices));
  }
  const std::string range = range_of(spec.range);
  if (!range.empty()) {
    add(static_cast<char>(range[0] - 'a' + 'A') + range.substr(1));
  }
  if (spec.support == Support::kAccepted) {
    add("No effect: " + std::string(spec.reason));
  } else if (!spec.available.empty()) {
    add("In this version only: " + join(usable_values(field)));
  } else if (spec.support == Support::kRefused) {
    add("Another value " + std::string(spec.reason));
  }
  return text;
}

std::string wrap(std::string_view text, std::string_view indent, size_t width) {
  std::string result;
  size_t column = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (column > 0 && column + 1 + word.size() > width) {
      result += '\n';
      column = 0;
    }
    if (column == 0) {
      result += indent;
      column = indent.size();
    } else {
      result += ' ';
      ++column;
    }
    result += word;
    column += word.size();
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result.empty() ? result : result + '\n';
}

}  // namespace finetune
