// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

namespace finetune {

// transformers' truncation strategies; kLongestFirst is its `truncation=True`.
enum class Truncation { kLongestFirst, kOnlyFirst, kOnlySecond };

// Lengths of two texts in tokens; `second` is 0 where there is one text.
struct PairLengths {
  int64_t first = 0;
  int64_t second = 0;
  bool operator==(const PairLengths&) const = default;
};

// How many tokens of each text remain, so that both together have at most `room`, as the tokenizers
// package's truncate_encodings does it. Tokens are removed at the tokenizer's truncation side.
// nullopt if the strategy cannot do it because no token of the text would remain (the package
// reports an error then). Requires: lengths are not negative; a negative room counts as 0.
[[nodiscard]] std::optional<PairLengths> truncate(PairLengths lengths, int64_t room,
                                                  Truncation strategy);

}  // namespace finetune
