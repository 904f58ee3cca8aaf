// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/reading/node.h"

namespace finetune {

// A value, or what was expected instead: "must be true or false, not 'yes' (...)".
template <class T>
struct Parsed {
  std::optional<T> value;
  std::string expected;
};

// Conversions do not use yaml-cpp: 010, 1_000, 0x10, yes and .inf mean different things to
// different readers and are rejected; quoted text is never a number.
[[nodiscard]] Parsed<bool> parse_bool(const Node& node);
[[nodiscard]] Parsed<int64_t> parse_integer(const Node& node);
[[nodiscard]] Parsed<double> parse_double(const Node& node);

// Returns any scalar as text; a plain null is not text.
[[nodiscard]] Parsed<std::string> parse_string(const Node& node);

// Whether the value is null, ~ or empty.
[[nodiscard]] bool is_null(const Node& node);

// Formats the value for a message, shortened if it is long.
[[nodiscard]] std::string show(const Node& node);

// Returns canonical JSON of a value; scalars have the types that they look like: null, true,
// numbers, otherwise strings.
[[nodiscard]] std::string to_json_text(const Node& node);

}  // namespace finetune
