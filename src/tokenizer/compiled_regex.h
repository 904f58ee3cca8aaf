// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/normalized_text.h"

namespace finetune::tokenizer {

// A regular expression of a tokenizer.json, run by PCRE2 (compiled to machine code where the system
// allows it). Results are those of the tokenizers package: regex_syntax.h. Immutable, so safe to
// share between threads.
class Regex {
 public:
  // Throws Error(kData) that starts with `where` (the file's path) and names the expression where
  // it is not supported, too large or no regular expression.
  Regex(std::string regex, std::string where);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  // All matches from left to right, none of them empty. Requires: well-formed UTF-8. Throws
  // Error(kData) that names the file and the expression where matching looks at more than 1,000
  // characters for each byte of the text, or needs more than 64 MiB.
  [[nodiscard]] std::vector<NormalizedText::Match> find_all(std::string_view text) const;

 private:
  struct Code;
  std::string regex_;
  std::string where_;
  std::unique_ptr<const Code> code_;
};

}  // namespace finetune::tokenizer
