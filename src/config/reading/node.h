// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace finetune {

// A value as written, before its key gives it a type. Values from YAML, JSON and the command line
// all have this form.
struct Node {
  enum class Kind { kNull, kPlain, kQuoted, kList, kMap };

  Kind kind = Kind::kNull;
  std::string text{};                // kPlain: as written; kQuoted: the string's content
  std::vector<std::string> names{};  // kMap: one for each item
  std::vector<Node> items{};         // kList, kMap

  [[nodiscard]] bool is_scalar() const { return kind == Kind::kPlain || kind == Kind::kQuoted; }
};

// One "key: value" of a file or the command line.
struct Setting {
  std::string key;
  std::string where;  // "file:line" or "command line"
  Node value;
};

inline constexpr size_t kMaxConfigBytes = size_t{1} << 20;
inline constexpr int kMaxConfigDepth = 32;
inline constexpr size_t kMaxConfigValues = 10'000;  // bounds all searches, including linear ones

// Both throw Error(kConfig) with file and line; duplicate keys are errors.
[[nodiscard]] std::vector<Setting> read_yaml(std::string_view text, const std::string& name);
[[nodiscard]] std::vector<Setting> read_json(std::string_view text, const std::string& name);

// Throws Error(kConfig) for words that do not have the form described at load_config().
[[nodiscard]] std::vector<Setting> read_overrides(const std::vector<std::string>& words);

// Parses a JSON array or object inside another value, as on the command line.
[[nodiscard]] Node read_inline_json(std::string_view text, const std::string& where);

}  // namespace finetune
