// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tokenizer/models/cached_model.h"
#include "tokenizer/models/char_trie.h"

namespace finetune::tokenizer {

// The content of a WordPiece model.
struct WordPieceParts {
  std::vector<std::pair<std::string, int32_t>> vocabulary;
  std::string unk_token = "[UNK]";
  std::string continuing_subword_prefix = "##";
  int64_t max_input_chars_per_word = 100;
};

// Splits a word into the longest token that starts it, the longest that continues it, and so on; if
// that does not reach its end, the word is the unknown token.
class WordPieceModel : public CachedModel {
 public:
  // Throws Error(kData), with `where` as prefix, for a duplicate id, a token that is too long, or
  // an unk_token that is not in the vocabulary.
  WordPieceModel(WordPieceParts parts, const std::string& where);

  [[nodiscard]] std::optional<int32_t> token_to_id(std::string_view token) const override;
  [[nodiscard]] const std::string& id_to_token(int32_t id) const override;
  [[nodiscard]] int64_t count() const override { return static_cast<int64_t>(ids_.size()); }
  [[nodiscard]] int64_t end_id() const override { return static_cast<int64_t>(tokens_.size()); }
  [[nodiscard]] const std::string& continuing_subword_prefix() const { return prefix_; }

 private:
  void segment(std::string_view word, std::vector<Piece>& pieces) const override;

  std::vector<std::string> tokens_;                    // by id
  std::unordered_map<std::string_view, int32_t> ids_;  // views into tokens_
  CharTrie starting_;                                  // all tokens
  CharTrie continuing_;                                // those with the prefix, without it
  std::string prefix_;
  size_t max_chars_;
  int32_t unk_id_ = -1;
};

}  // namespace finetune::tokenizer
