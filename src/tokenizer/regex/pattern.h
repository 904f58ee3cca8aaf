// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/unicode/normalized_text.h"

namespace finetune::tokenizer {

// Bytes to which replacements may let any text grow; NormalizedText needs nine times that.
inline constexpr size_t kLongestReplaced = size_t{16} << 20;

class Regex;
class TextCutter;

// The pattern of Replace and Split: a string or a regular expression (compiled_regex.h).
class Pattern {
 public:
  using Match = NormalizedText::Match;

  // Reads {"String": "..."} or {"Regex": "..."}. Throws Error(kData) for unsupported patterns.
  Pattern(const nlohmann::ordered_json& json, const std::string& where);

  // Returns all matches from left to right, as in the tokenizers package. Throws Error(kData) if a
  // regular expression takes too long on this text.
  [[nodiscard]] std::vector<Match> find_all(std::string_view text) const;
  // Like find_all(), for matches to be replaced by `content`. Also throws Error(kData) if the text
  // would grow beyond kLongestReplaced and four times its size, as a chain of replacements could.
  [[nodiscard]] std::vector<Match> find_replaced(std::string_view text,
                                                 std::string_view content) const;

  // Returns the hand-written matcher for this regular expression; null if there is none.
  [[nodiscard]] const TextCutter* cutter() const { return cutter_.get(); }

 private:
  std::string literal_;
  std::shared_ptr<const Regex> regex_;  // null for a literal
  std::shared_ptr<const TextCutter> cutter_;
};

}  // namespace finetune::tokenizer
