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

// The `model` of tokenizer.json: a normalised, pre-tokenised word becomes tokens. Immutable, so
// safe to share between threads.
class TokenModel {
 public:
  virtual ~TokenModel() = default;

  // Appends the pieces of `word`, in order and with the ranges that the tokenizers package gives
  // them. Requires: well-formed UTF-8 (byte-level BPE: any bytes), less than 4 GiB.
  virtual void tokenize(std::string_view word, std::vector<Piece>& pieces) const = 0;
  // The same ids without the ranges: for models that can do better without them.
  virtual void append_ids(std::string_view word, std::vector<int32_t>& ids) const {
    thread_local std::vector<Piece> pieces;
    pieces.clear();
    tokenize(word, pieces);
    for (const Piece& piece : pieces) ids.push_back(piece.id);
  }
  // append_ids() for a caller that remembers the words itself: the model does not.
  virtual void append_new_ids(std::string_view word, std::vector<int32_t>& ids) const {
    append_ids(word, ids);
  }

  [[nodiscard]] virtual std::optional<int32_t> token_to_id(std::string_view token) const = 0;
  // As the vocabulary spells it; empty where unused.
  [[nodiscard]] virtual const std::string& id_to_token(int32_t id) const = 0;
  [[nodiscard]] virtual int64_t count() const = 0;   // tokens
  [[nodiscard]] virtual int64_t end_id() const = 0;  // 1 + the largest id
};

}  // namespace finetune::tokenizer
