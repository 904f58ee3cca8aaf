// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace finetune::tokenizer {

// Cuts a text into extended grapheme clusters, with the Unicode version of the tokenizers package.
// A pair of regional indicators may be cut: nothing here depends on it.
class GraphemeSplitter {
 public:
  // Whether the character may be one cluster with its neighbours. Two that do not join are two
  // clusters.
  [[nodiscard]] static bool joins(char32_t c);

  // Requires: well-formed UTF-8.
  explicit GraphemeSplitter(std::string_view text);

  // The next cluster; nothing at the end. The clusters cover the text without gaps.
  [[nodiscard]] std::optional<std::string_view> next();

 private:
  [[nodiscard]] bool joined(uint8_t before, uint8_t after) const;
  void pass(uint8_t properties);

  std::string_view text_;
  size_t offset_ = 0;
  size_t after_ = 0;         // after the character at offset_
  uint8_t current_ = 0;      // what it is
  bool pictograph_ = false;  // after a pictographic, Extends, and possibly a joiner
  bool consonant_ = false;   // after a consonant and its Extends
  bool linker_ = false;      // and a linker among them
};

}  // namespace finetune::tokenizer
