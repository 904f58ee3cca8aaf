// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace finetune::tokenizer {

// A token and its bytes [begin, end) of the word.
struct Piece {
  int32_t id = -1;
  uint32_t begin = 0;
  uint32_t end = 0;
};

// The `model` of tokenizer.json: converts a normalised, pre-tokenised word to tokens. Immutable, so
// safe to share between threads.
class TokenModel {
 public:
  virtual ~TokenModel() = default;

  // Appends the pieces of `word`, in order and with the ranges that the tokenizers package gives
  // them. Requires: well-formed UTF-8 (byte-level BPE: any bytes), less than 4 GiB.
  virtual void tokenize(std::string_view word, std::vector<Piece>& pieces) const = 0;
  // Appends the same ids without ranges, which some models can do faster.
  virtual void append_ids(std::string_view word, std::vector<int32_t>& ids) const {
    thread_local std::vector<Piece> pieces;
    pieces.clear();
    tokenize(word, pieces);
    for (const Piece& piece : pieces) ids.push_back(piece.id);
  }
  // The same for callers that cache words themselves: the model does not.
  virtual void append_new_ids(std::string_view word, std::vector<int32_t>& ids) const {
    append_ids(word, ids);
  }

  [[nodiscard]] virtual std::optional<int32_t> token_to_id(std::string_view token) const = 0;
  // Returns the token as spelled in the vocabulary; empty if unused.
  [[nodiscard]] virtual const std::string& id_to_token(int32_t id) const = 0;
  [[nodiscard]] virtual int64_t count() const = 0;   // tokens
  [[nodiscard]] virtual int64_t end_id() const = 0;  // 1 + the largest id
};

}  // namespace finetune::tokenizer
