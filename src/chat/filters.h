// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

#include "chat/render_limits.h"
#include "finetune/chat/value.h"

namespace finetune::chat {

// A filter of jinja2: "value|name(arguments)". `call` throws Error(kData) without a position.
struct Filter {
  std::string_view name;
  Value (*call)(const Value& value, const Arguments& arguments, Limits& limits);
};
struct Test {
  std::string_view name;
  bool (*call)(const Value& value, const Arguments& arguments);
};

// Return nullptr for an unknown name.
[[nodiscard]] const Filter* find_filter(std::string_view name);
[[nodiscard]] const Test* find_test(std::string_view name);

// Returns the method of a str, dict or list, bound to `value`; undefined if there is none.
[[nodiscard]] Value bound_method(const Value& value, const std::string& name, Limits& limits);

// Python's value.name and value[key]: undefined if there is no such member.
[[nodiscard]] Value attribute_of(const Value& value, const Value& name, Limits& limits);
[[nodiscard]] Value item_of(const Value& value, const Value& key, Limits& limits);

}  // namespace finetune::chat
