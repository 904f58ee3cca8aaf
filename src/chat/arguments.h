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

// What one rendering may use, since templates and rows are untrusted.
struct Limits {
  static constexpr int64_t kMaxSteps = 10'000'000;
  static constexpr size_t kMaxBytes = size_t{64} << 20;  // of one text
  static constexpr size_t kMaxItems = 1'000'000;         // of one list
  static constexpr int kMaxDepth = 2'000;                // of nested evaluations

  int64_t steps = 0;
  int depth = 0;

  void count(size_t amount = 1) {
    steps += static_cast<int64_t>(amount);
    if (steps > kMaxSteps) {
      throw Error(ErrorKind::kData, "the template takes more than 10 million steps");
    }
  }
  // Checks the size of a text and counts its bytes as work, 64 a step.
  void check_text(size_t bytes) {
    if (bytes > kMaxBytes) throw Error(ErrorKind::kData, "the template makes more than 64 MiB");
    count(bytes / 64);
  }
  void check_list(size_t items) {
    if (items > kMaxItems) {
      throw Error(ErrorKind::kData, "the template makes a list of more than 1,000,000 items");
    }
    count(items / 8);
  }
};

[[noreturn]] inline void fail(const std::string& problem) {
  throw Error(ErrorKind::kData, problem);
}
// "'x' is undefined", as jinja2 says.
[[noreturn]] inline void fail_undefined(const Value& value) {
  fail("'" + value.undefined_name() + "' is undefined");
}

// Returns the arguments in the order of `names`, undefined where absent. Throws Error(kData) for
// others; the first `required` must be there.
[[nodiscard]] std::vector<Value> bind(const Arguments& arguments,
                                      std::initializer_list<std::string_view> names,
                                      size_t required = 0);

// Throws Error(kData) if there are arguments.
void take_none(const Arguments& arguments);

[[nodiscard]] const TracedText& as_text(const Value& value);
[[nodiscard]] int64_t as_integer(const Value& value);
// Returns the items that a loop visits: of lists, keys of a dict, characters of text, nothing of
// an undefined value. Throws Error(kData) for other types.
[[nodiscard]] std::vector<Value> items_of(const Value& value, Limits& limits);
// len(). Throws Error(kData) for a type without length.
[[nodiscard]] int64_t size_of(const Value& value);

// Python's operators. Throw Error(kData) for types that lack them.
[[nodiscard]] Value arithmetic(std::string_view name, const Value& a, const Value& b,
                               Limits& limits);
[[nodiscard]] Value negative(const Value& value);
[[nodiscard]] bool compare(std::string_view name, const Value& a, const Value& b);
[[nodiscard]] bool contains(const Value& container, const Value& item);
[[nodiscard]] Value slice(const Value& value, const Value& begin, const Value& end,
                          const Value& step, Limits& limits);

}  // namespace finetune::chat
