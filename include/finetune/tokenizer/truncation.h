// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

namespace finetune {

// transformers' truncation strategies; kLongestFirst is its `truncation=True`.
enum class Truncation { kLongestFirst, kOnlyFirst, kOnlySecond };

// Lengths of two texts in tokens; `second` is 0 if there is one text.
struct PairLengths {
  int64_t first = 0;
  int64_t second = 0;
  bool operator==(const PairLengths&) const = default;
};

// Returns how many tokens of each text remain so that both together have at most `room`, like the
// tokenizers package's truncate_encodings. Tokens are removed at the tokenizer's truncation side.
// nullopt if the strategy would leave no token of a text that it truncates (an error in the
// package). Requires: lengths are not negative; a negative room counts as 0.
[[nodiscard]] std::optional<PairLengths> truncate(PairLengths lengths, int64_t room,
                                                  Truncation strategy);

}  // namespace finetune
