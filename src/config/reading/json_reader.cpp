// SPDX-License-Identifier: MIT
#include <nlohmann/json.hpp>

#include "config/reading/node.h"
#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr JsonLimits kLimits{.max_bytes = kMaxConfigBytes, .max_depth = kMaxConfigDepth};

// Like parse_json, but syntax errors include the column and what was found.
Json parse_config_json(std::string_view text, const std::string& where) {
  try {
    return parse_json(text, where, ErrorKind::kConfig, kLimits);
  } catch (const JsonError& error) {
    const JsonFault& fault = error.fault();
    if (fault.found.empty()) throw;
    throw Error(ErrorKind::kConfig, format_text("{}:{}:{}: {}: {}", where, fault.line, fault.column,
                                                fault.problem, fault.found));
  }
}

// Recursion is bounded by kMaxConfigDepth.
Node to_node(const Json& value, const std::string& where, size_t& values) {
  if (++values > kMaxConfigValues) {
    throw Error(ErrorKind::kConfig, where + ": holds too many values for a configuration");
  }
  Node node;
  if (value.is_string()) {
    node.kind = Node::Kind::kQuoted;
    node.text = value.get<std::string>();
  } else if (value.is_object()) {
    node.kind = Node::Kind::kMap;
    for (const auto& [name, item] : value.items()) {
      node.names.push_back(name);
      node.items.push_back(to_node(item, where, values));
    }
  } else if (value.is_array()) {
    node.kind = Node::Kind::kList;
    for (const Json& item : value) node.items.push_back(to_node(item, where, values));
  } else if (!value.is_null()) {
    node.kind = Node::Kind::kPlain;
    node.text = value.is_number_float() ? format_double(value.get<double>()) : value.dump();
  }
  return node;
}

// Returns the line of every key of the outermost object, in order. Requires: valid JSON.
std::vector<int> key_lines(std::string_view text) {
  std::vector<int> lines;
  int line = 1;
  int depth = 0;
  bool key_is_next = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (c == '{' || c == '[') {
      ++depth;
      key_is_next = depth == 1;
    } else if (c == '}' || c == ']') {
      --depth;
    } else if (c == ',') {
      key_is_next = depth == 1;
    } else if (c == '"') {
      if (key_is_next) lines.push_back(line);
      key_is_next = false;
      for (++i; i < text.size() && text[i] != '"'; ++i) {
        if (text[i] == '\\') ++i;
      }
    }
  }
  return lines;
}

}  // namespace

std::vector<Setting> read_json(std::string_view text, const std::string& name) {
  const Json root = parse_config_json(text, name);
  if (!root.is_object()) {
    throw Error(ErrorKind::kConfig, name + ": must hold an object ({\"key\": value, ...})");
  }
  const std::vector<int> lines = key_lines(text);
  std::vector<Setting> settings;
  size_t values = 0;
  for (const auto& [key, value] : root.items()) {
    const size_t i = settings.size();
    FT_CHECK(i < lines.size(), "every key of an object has a line");
    settings.push_back({key, format_text("{}:{}", name, lines[i]), to_node(value, name, values)});
  }
  return settings;
}

Node read_inline_json(std::string_view text, const std::string& where) {
  size_t values = 0;
  try {
    return to_node(parse_config_json(text, where), where, values);
  } catch (const Error&) {
    // Double quotes in a mapping indicate JSON, whose error message is then the more helpful one.
    const bool is_list = text.starts_with('[');
    const bool is_mapping = text.starts_with('{') && text.find('"') == std::string_view::npos;
    if (!is_list && !is_mapping) throw;
    // Try it as one-line YAML, such as "[sudo, poweroff]" or "{a: 1, b: 2}", as in a file.
    try {
      std::vector<Setting> settings = read_yaml("value: " + std::string(text), where);
      if (settings.size() == 1 && !settings[0].value.is_scalar()) return settings[0].value;
    } catch (const Error&) {  // the JSON error is more helpful
    }
    throw;
  }
}

}  // namespace finetune
