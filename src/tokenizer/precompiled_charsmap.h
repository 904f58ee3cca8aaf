// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/normalized_text.h"

namespace finetune::tokenizer {

// SentencePiece's normalisation rules (precompiled_charsmap): a trie of what is replaced, and the
// replacements. Works as the tokenizers package does: a grapheme cluster of less than six bytes is
// replaced as a whole by the shortest rule that it starts with; else its characters one by one.
class PrecompiledCharsmap {
 public:
  // The bytes as a model holds them, or base64 as in tokenizer.json. Throws Error(kData) as
  // check_charsmap() does.
  PrecompiledCharsmap(std::string_view map, const std::string& where);
  [[nodiscard]] static PrecompiledCharsmap from_base64(std::string_view text,
                                                       const std::string& where);

  // Requires: well-formed UTF-8.
  void normalize(NormalizedText& text) const;

 private:
  // The replacement by the shortest rule that `text` starts with.
  [[nodiscard]] std::optional<std::string_view> find(std::string_view text) const;
  [[nodiscard]] bool changes_something(std::string_view text) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

// Throws Error(kData), starting with `where`, for rules beyond 1 MiB or whose trie leaves its
// array, loops, nests more than 32 rules or points at no replacement.
void check_charsmap(std::string_view map, const std::string& where);

}  // namespace finetune::tokenizer
