// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "tokenizer/unicode/general_category.h"

namespace finetune::tokenizer {

// Formats a code point for PCRE2: \x{1f}.
[[nodiscard]] std::string spell_code_point(char32_t code_point);

// A set of code points: the characters that a character class of a regular expression accepts.
class CodePointSet {
 public:
  void add(char32_t first, char32_t last) { ranges_.push_back({first, last}); }
  void add(const CodePointSet& other);
  void add(CategorySet categories);
  // Returns all code points that are not in the set.
  [[nodiscard]] CodePointSet complement() const;
  // Returns the set as a character class of PCRE2, with all code points spelled out:
  // [\x{41}-\x{5a}].
  [[nodiscard]] std::string to_class() const;

  [[nodiscard]] static CodePointSet white_space();  // \s
  [[nodiscard]] static CodePointSet word();         // \w

 private:
  // Returns sorted, disjoint ranges without surrogates.
  [[nodiscard]] std::vector<CodePointRange> sorted() const;

  std::vector<CodePointRange> ranges_;
};

}  // namespace finetune::tokenizer
