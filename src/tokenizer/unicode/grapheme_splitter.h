// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace finetune::tokenizer {

// Splits a text into extended grapheme clusters, with the Unicode version of the tokenizers
// package. A pair of regional indicators may be split, which does not matter here.
class GraphemeSplitter {
 public:
  // Whether the character may be in one cluster with its neighbours. Two characters for which this
  // is false are two clusters.
  [[nodiscard]] static bool joins(char32_t c);

  // Requires: well-formed UTF-8.
  explicit GraphemeSplitter(std::string_view text);

  // Returns the next cluster; nullopt at the end. The clusters cover the text without gaps.
  [[nodiscard]] std::optional<std::string_view> next();

 private:
  [[nodiscard]] bool joined(uint8_t before, uint8_t after) const;
  void pass(uint8_t properties);

  std::string_view text_;
  size_t offset_ = 0;
  size_t after_ = 0;         // end of the character at offset_
  uint8_t current_ = 0;      // properties of the character at offset_
  bool pictograph_ = false;  // after a pictographic character, Extends and possibly a joiner
  bool consonant_ = false;   // after a consonant and its Extends
  bool linker_ = false;      // the Extends include a linker
};

}  // namespace finetune::tokenizer
