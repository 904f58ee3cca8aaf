// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/chat/value.h"

namespace finetune::chat {

[[noreturn]] inline void fail(const std::string& problem) {
  throw Error(ErrorKind::kData, problem);
}
// "'x' is undefined", as jinja2 says.
[[noreturn]] inline void fail_undefined(const Value& value) {
  fail("'" + value.undefined_name() + "' is undefined");
}

// Returns the arguments in the order of `names`, undefined where absent. Throws Error(kData) for
// others; the first `required` must be there.
[[nodiscard]] Values bind(const Arguments& arguments, std::initializer_list<std::string_view> names,
                          size_t required = 0);

// Throws Error(kData) if there are arguments.
void take_none(const Arguments& arguments);

[[nodiscard]] const TracedText& as_text(const Value& value);
[[nodiscard]] int64_t as_integer(const Value& value);
// Returns the items that a loop visits: of lists, keys of a dict, characters of text, nothing of
// an undefined value. Throws Error(kData) for other types.
[[nodiscard]] Values items_of(const Value& value);
// Text with &, <, >, " and ' as entities; text of |safe as it is.
[[nodiscard]] TracedText escaped(const TracedText& text);
// len(). Throws Error(kData) for a type without length.
[[nodiscard]] int64_t size_of(const Value& value);

// Python's operators. Throw Error(kData) for types that lack them.
[[nodiscard]] Value arithmetic(std::string_view name, const Value& a, const Value& b);
[[nodiscard]] Value negative(const Value& value);
[[nodiscard]] bool compare(std::string_view name, const Value& a, const Value& b);
[[nodiscard]] bool contains(const Value& container, const Value& item);
[[nodiscard]] Value slice(const Value& value, const Value& begin, const Value& end,
                          const Value& step);

}  // namespace finetune::chat
