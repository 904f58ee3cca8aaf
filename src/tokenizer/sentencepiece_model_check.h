// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace finetune::tokenizer {

// What the check has seen on its way.
struct SentencePieceSummary {
  int64_t pieces = 0;
  bool byte_fallback = false;
};

// Reads a serialised SentencePiece model before the library does and throws Error(kData), starting
// with `where`, for everything that the library is known not to survive or has no use for: a file
// beyond 64 MiB, more than 4M pieces, a piece that is empty, beyond 4 KiB or not UTF-8, a score
// that is not finite, unknown types, normalisation rules beyond 1 MiB or whose trie leaves its
// array, loops or nests more than 32 rules, more than 32 user-defined pieces that start one
// another.
SentencePieceSummary check_sentencepiece_model(std::string_view model, const std::string& where);

}  // namespace finetune::tokenizer
