// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/unicode/normalized_text.h"

namespace finetune::tokenizer {

// SentencePiece's normalisation rules (precompiled_charsmap): a trie of strings, and their
// replacements. Works like the tokenizers package: a grapheme cluster of less than six bytes is
// replaced as a whole by the shortest rule that it starts with; otherwise its characters are
// replaced one by one.
class PrecompiledCharsmap {
 public:
  // The rules as bytes in a model, or as base64 in tokenizer.json. Throw Error(kData) like
  // check_charsmap().
  PrecompiledCharsmap(std::string_view map, const std::string& where);
  [[nodiscard]] static PrecompiledCharsmap from_base64(std::string_view text,
                                                       const std::string& where);

  // Requires: well-formed UTF-8.
  void normalize(NormalizedText& text) const;
  // Returns the normalised text without origins.
  [[nodiscard]] std::string normalized(std::string_view text) const;

 private:
  // Returns the replacement by the shortest rule that `text` starts with.
  [[nodiscard]] std::optional<std::string_view> find(std::string_view text) const;
  // Returns the offset of the first marked character; the text's size if there is none.
  [[nodiscard]] size_t find_marked(std::string_view text, size_t from) const;
  [[nodiscard]] bool is_marked(char32_t c) const {
    return c >= kMarked || (marked_[c / 64] >> (c % 64) & 1) != 0;
  }
  void append_cluster(std::string_view cluster, std::string& result) const;

  // Characters that have a rule alone or join their neighbours; all others, where they are not in a
  // cluster with one of these, are unchanged.
  static constexpr char32_t kMarked = 0x10000;  // larger ones always count as marked
  std::array<uint64_t, kMarked / 64> marked_{};
  std::vector<uint32_t> units_;
  std::string replacements_;
};

// Throws Error(kData), starting with `where`, for rules above 1 MiB or with a trie that leaves its
// array, loops, nests more than 32 rules or refers to a missing replacement.
void check_charsmap(std::string_view map, const std::string& where);

}  // namespace finetune::tokenizer
