// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/steps/normalizer.h"
#include "tokenizer/steps/pre_tokenizer.h"

namespace finetune::tokenizer {

// The result of normalizer and pre-tokenizer for words of simple characters, from a table:
// characters below U+0300 whose result does not depend on their neighbours, and is never white
// space. Such a word has the same result between two spaces as alone.
class SimpleWords {
 public:
  // Requires: SpacedWords::serve(). In such pipelines the result of a character below U+0300
  // depends on a neighbour only if that is a character (a mark) that is never simple.
  SimpleWords(const Normalizer& normalizer, const PreTokenizer& pre_tokenizer);

  // Sets `text` to the normalised word and `ends` to the ends of its parts. Returns false if a
  // character is not simple. Requires: valid UTF-8, not empty.
  [[nodiscard]] bool cut(std::string_view word, std::string& text, std::vector<size_t>& ends) const;

 private:
  static constexpr char32_t kEnd = 0x300;
  struct Char {
    std::array<char, 6> bytes{};  // the character's result
    uint8_t size = 0;             // 0: not simple
    bool apart = false;           // is a separate part
  };

  std::array<Char, kEnd> chars_{};
  std::string prefix_;  // put in front of every word
};

}  // namespace finetune::tokenizer
