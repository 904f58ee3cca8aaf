// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/normalized_text.h"

namespace finetune::tokenizer {

class Regex;
class TextCutter;

// What Replace and Split look for: a string or a regular expression (compiled_regex.h).
class Pattern {
 public:
  using Match = NormalizedText::Match;

  // Reads {"String": "..."} or {"Regex": "..."}. Throws Error(kData) for what is not supported.
  Pattern(const nlohmann::ordered_json& json, const std::string& where);

  // All matches, from left to right, as the tokenizers package finds them. Throws Error(kData)
  // where a regular expression takes too long on this text.
  [[nodiscard]] std::vector<Match> find_all(std::string_view text) const;
  // find_all() for matches that `content` is put in the place of: Error(kData) also where the text
  // would grow beyond 256 MiB, as a chain of them could make it.
  [[nodiscard]] std::vector<Match> find_replaced(std::string_view text,
                                                 std::string_view content) const;

  // The matcher written by hand for this regular expression; null where there is none.
  [[nodiscard]] const TextCutter* cutter() const { return cutter_.get(); }

 private:
  std::string literal_;
  std::shared_ptr<const Regex> regex_;  // null for a literal
  std::shared_ptr<const TextCutter> cutter_;
};

}  // namespace finetune::tokenizer
