// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/node.h"

namespace finetune {

// A value, or what was expected instead: "must be true or false, not 'yes' (...)".
template <class T>
struct Parsed {
  std::optional<T> value;
  std::string expected;
};

// The conversions are our own, not yaml-cpp's: 010, 1_000, 0x10, yes and .inf mean different
// things to different readers and are refused; quoted text is never a number.
[[nodiscard]] Parsed<bool> parse_bool(const Node& node);
[[nodiscard]] Parsed<int64_t> parse_integer(const Node& node);
[[nodiscard]] Parsed<double> parse_double(const Node& node);

// Any scalar as text; a plain null is not text.
[[nodiscard]] Parsed<std::string> parse_string(const Node& node);

// null, ~ or nothing at all.
[[nodiscard]] bool is_null(const Node& node);

// The value for a message, shortened where it is long.
[[nodiscard]] std::string show(const Node& node);

// Canonical JSON of a value whose scalars have the types they look like: null, true, numbers,
// otherwise strings.
[[nodiscard]] std::string to_json_text(const Node& node);

}  // namespace finetune
