// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/unicode/normalized_text.h"

namespace finetune::tokenizer {

// A regular expression of a tokenizer.json, run by PCRE2 (compiled to machine code if the system
// allows it). Results equal those of the tokenizers package: regex_syntax.h. Immutable, so safe to
// share between threads.
class Regex {
 public:
  // Throws Error(kData) that starts with `where` (the file's path) and names the expression if it
  // is unsupported, too large or invalid.
  Regex(std::string regex, std::string where);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  // Returns all non-empty matches from left to right. Requires: well-formed UTF-8. Throws
  // Error(kData) naming the file and the expression if matching examines more than 1,000 characters
  // per byte of the text, or needs more than 64 MiB.
  [[nodiscard]] std::vector<NormalizedText::Match> find_all(std::string_view text) const;

 private:
  struct Code;
  std::string regex_;
  std::string where_;
  std::unique_ptr<const Code> code_;
};

}  // namespace finetune::tokenizer
