// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace finetune {

// A value as it was written, before its key gives it a type. YAML, JSON and the command line all
// become this.
struct Node {
  enum class Kind { kNull, kPlain, kQuoted, kList, kMap };

  Kind kind = Kind::kNull;
  std::string text{};                // kPlain: as written; kQuoted: the string's content
  std::vector<std::string> names{};  // kMap: one for each item
  std::vector<Node> items{};         // kList, kMap

  [[nodiscard]] bool is_scalar() const { return kind == Kind::kPlain || kind == Kind::kQuoted; }
};

// "key: value" of a file or the command line.
struct Setting {
  std::string key;
  std::string where;  // "file:line" or "command line"
  Node value;
};

inline constexpr size_t kMaxConfigBytes = size_t{1} << 20;
inline constexpr int kMaxConfigDepth = 32;
inline constexpr size_t kMaxConfigValues = 10'000;  // bounds every search that is not hashed

// Both throw Error(kConfig) with file and line; duplicate keys are errors.
[[nodiscard]] std::vector<Setting> read_yaml(std::string_view text, const std::string& name);
[[nodiscard]] std::vector<Setting> read_json(std::string_view text, const std::string& name);

// Throws Error(kConfig) for words that are not of the form load_config describes.
[[nodiscard]] std::vector<Setting> read_overrides(const std::vector<std::string>& words);

// A JSON array or object written inside another value, as on the command line.
[[nodiscard]] Node read_inline_json(std::string_view text, const std::string& where);

}  // namespace finetune
