// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"

namespace finetune::tokenizer {

// What normalizer and pre-tokenizer make of words of simple characters, by a table: characters
// below U+0300 that become the same whatever stands beside them, and never white space. Such a word
// is also the same between two spaces as alone.
class SimpleWords {
 public:
  // Requires: SpacedWords::serve(), whose pipelines look beyond a character below U+0300 only where
  // one of others follows (marks), which are never simple.
  SimpleWords(const Normalizer& normalizer, const PreTokenizer& pre_tokenizer);

  // Makes `text` the normalised word and `ends` the ends of the parts that it is cut into. False
  // where a character of it is not simple. Requires: well-formed UTF-8, not empty.
  [[nodiscard]] bool cut(std::string_view word, std::string& text, std::vector<size_t>& ends) const;

 private:
  static constexpr char32_t kEnd = 0x300;
  struct Char {
    std::array<char, 6> bytes{};  // what becomes of it
    uint8_t size = 0;             // 0: it is not simple
    bool apart = false;           // a part of its own
  };

  std::array<Char, kEnd> chars_{};
  std::string prefix_;  // in front of every word
};

}  // namespace finetune::tokenizer
