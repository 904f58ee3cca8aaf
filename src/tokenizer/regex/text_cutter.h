// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace finetune::tokenizer {

// Splits a text into pieces that cover it without gaps, like a Split with behavior Isolated.
// Immutable, so safe to share between threads.
class TextCutter {
 public:
  virtual ~TextCutter() = default;
  // Appends the end of each piece, in order; the last one is text.size(). Appends nothing for an
  // empty text. Requires: well-formed UTF-8, < 4 GiB.
  virtual void cut(std::string_view text, std::vector<uint32_t>& ends) const = 0;
};

// Returns the hand-written matcher for a regular expression that real models use: GPT-2, Llama 3
// and cl100k, Qwen 2 and 3.5, o200k, Mistral's tekken, the three of DeepSeek-V3. Recognised by the
// exact text of the expression; null for others.
[[nodiscard]] std::shared_ptr<const TextCutter> find_cutter(std::string_view regex);

// Returns GPT-2's cutter, which is built into ByteLevel:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
[[nodiscard]] const TextCutter& gpt2_cutter();

// Makes a cutter for which each digit (as in the tokenizers package's Digits) is one piece.
[[nodiscard]] std::shared_ptr<const TextCutter> make_digit_cutter();

}  // namespace finetune::tokenizer
