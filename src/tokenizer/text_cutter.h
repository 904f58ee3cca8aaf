// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace finetune::tokenizer {

// Cuts a text into pieces that cover it without gaps, as a Split with the behavior Isolated does.
// Immutable, so safe to share between threads.
class TextCutter {
 public:
  virtual ~TextCutter() = default;
  // Appends where each piece ends, in order; the last end is text.size(). Nothing for an empty
  // text. Requires: well-formed UTF-8, < 4 GiB.
  virtual void cut(std::string_view text, std::vector<uint32_t>& ends) const = 0;
};

// A matcher written by hand for a regular expression that real models split by: GPT-2, Llama 3 and
// cl100k, Qwen 2 and 3.5, o200k, Mistral's tekken, the three of DeepSeek-V3. Recognised by the
// expression's text, character by character; null for every other one.
[[nodiscard]] std::shared_ptr<const TextCutter> find_cutter(std::string_view regex);

// GPT-2's, which ByteLevel has built in:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
[[nodiscard]] const TextCutter& gpt2_cutter();

// Each number (by the tokenizers package's Digits) is one piece.
[[nodiscard]] std::shared_ptr<const TextCutter> make_digit_cutter();

}  // namespace finetune::tokenizer
