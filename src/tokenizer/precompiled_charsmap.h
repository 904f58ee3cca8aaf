// SPDX-License-Identifier: MIT
#pragma once

#include <array>
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
  // The same text without where its characters come from.
  [[nodiscard]] std::string normalized(std::string_view text) const;

 private:
  // The replacement by the shortest rule that `text` starts with.
  [[nodiscard]] std::optional<std::string_view> find(std::string_view text) const;
  // Where the first character is that is marked_; the text's size where there is none.
  [[nodiscard]] size_t find_marked(std::string_view text, size_t from) const;
  [[nodiscard]] bool is_marked(char32_t c) const {
    return c >= kMarked || (marked_[c / 64] >> (c % 64) & 1) != 0;
  }
  void append_cluster(std::string_view cluster, std::string& result) const;

  // Characters that are the start of a rule or join their neighbours: all others stay as they are.
  static constexpr char32_t kMarked = 0x10000;  // those beyond are not told apart
  std::array<uint64_t, kMarked / 64> marked_{};
  std::vector<uint32_t> units_;
  std::string replacements_;
};

// Throws Error(kData), starting with `where`, for rules beyond 1 MiB or whose trie leaves its
// array, loops, nests more than 32 rules or points at no replacement.
void check_charsmap(std::string_view map, const std::string& where);

}  // namespace finetune::tokenizer
