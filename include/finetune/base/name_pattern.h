// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace finetune {

// A regular expression (PCRE2's syntax, which is Python's but for rare forms) for whole names, from
// keys and from files of other people: at most 64 kB long, and matching ends after a limited number
// of steps. Thread-safe.
class NamePattern {
 public:
  // Throws Error(kConfig) with PCRE2's reason, for the caller to add where `text` stands.
  explicit NamePattern(std::string text);

  [[nodiscard]] const std::string& text() const { return text_; }
  // As Python's re.fullmatch(). Throws Error(kConfig) if the limit is reached.
  [[nodiscard]] bool matches(std::string_view name) const;

 private:
  std::string text_;
  std::shared_ptr<const void> code_;  // pcre2_code
};

}  // namespace finetune
