// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/arguments.h"
#include "chat/characters.h"
#include "finetune/chat/value.h"

namespace finetune::chat {

// A filter of jinja2: "value|name(arguments)". `call` throws Error(kData) without a position.
struct Filter {
  std::string_view name;
  Value (*call)(const Value& value, const Arguments& arguments);
};
struct Test {
  std::string_view name;
  bool (*call)(const Value& value, const Arguments& arguments);
};

// All names, for tests that must reach each.
[[nodiscard]] std::vector<std::string_view> filter_names();
[[nodiscard]] std::vector<std::string_view> test_names();
[[nodiscard]] std::vector<std::string_view> method_names();

// Whether a filter has the meaning of markupsafe's for a text of |safe; others are refused for it.
[[nodiscard]] bool takes_markup(std::string_view name);
// Return nullptr for an unknown name.
[[nodiscard]] const Filter* find_filter(std::string_view name);
[[nodiscard]] const Test* find_test(std::string_view name);

// Returns the method of a str, dict or list, bound to `value`; undefined if there is none.
[[nodiscard]] Value bound_method(const Value& value, const std::string& name);

// Python's value.name and value[key]: undefined if there is no such member.
[[nodiscard]] Value attribute_of(const Value& value, const Value& name);
[[nodiscard]] Value item_of(const Value& value, const Value& key);

// Methods of str that are filters, too.
// `chars`: undefined or None: white space.
[[nodiscard]] TracedText strip(const TracedText& text, Ends ends, const Value& chars);
// `only_text`: refuse other items, as str.join() does; false: convert them, as the filter does.
[[nodiscard]] TracedText join_items(const Values& items, const TracedText& separator,
                                    bool only_text);
// str.replace(old, new, count).
[[nodiscard]] TracedText replace_method(const TracedText& text, const Arguments& arguments);

}  // namespace finetune::chat
