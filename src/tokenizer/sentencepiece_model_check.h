// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace finetune::tokenizer {

// What a serialised SentencePiece model says. Views into its bytes.
struct SentencePieceSummary {
  enum PieceType : uint8_t {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6
  };
  static constexpr uint64_t kUnigram = 1;
  static constexpr uint64_t kBpe = 2;
  struct Piece {
    std::string_view text;
    float score = 0;
    PieceType type = kNormal;
  };
  std::vector<Piece> pieces;  // by id
  uint64_t model_type = 1;    // as the trainer's options number it
  bool byte_fallback = false;
  bool add_dummy_prefix = true;
  std::string_view charsmap;  // normalisation rules; empty where there are none
};

// Reads a serialised SentencePiece model and throws Error(kData), starting with `where`, for
// everything that the library is known not to survive or has no use for: a file beyond 64 MiB, more
// than 4M pieces, a piece that is empty, beyond 4 KiB or not UTF-8, a score that is not finite,
// unknown types, normalisation rules that check_charsmap() refuses, more than 32 user-defined
// pieces that start one another.
SentencePieceSummary check_sentencepiece_model(std::string_view model, const std::string& where);

}  // namespace finetune::tokenizer
