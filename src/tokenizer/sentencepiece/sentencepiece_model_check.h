// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace finetune::tokenizer {

// The content of a serialised SentencePiece model, as views into its bytes.
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
  uint64_t model_type = 1;    // the trainer's number of the type
  bool byte_fallback = false;
  bool add_dummy_prefix = true;
  std::string_view charsmap;  // normalisation rules; empty if there are none
};

// Reads a serialised SentencePiece model. Throws Error(kData), starting with `where`, for anything
// that is known to crash the library or is invalid: a file above 64 MiB, more than 4M pieces, a
// piece that is empty, above 4 KiB or not UTF-8, a non-finite score, unknown types, normalisation
// rules that check_charsmap() rejects, more than 32 user-defined pieces that are prefixes of each
// other.
SentencePieceSummary check_sentencepiece_model(std::string_view model, const std::string& where);

}  // namespace finetune::tokenizer
