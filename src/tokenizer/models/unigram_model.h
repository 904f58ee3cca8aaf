// SPDX-License-Identifier: MIT
#pragma once

#include <array>
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

// The content of a Unigram model.
struct UnigramParts {
  std::vector<std::pair<std::string, double>> vocabulary;  // by id, with scores
  std::optional<int64_t> unk_id{};
  bool byte_fallback = false;  // <0x0A> etc. for the bytes of text without a token
};

// Returns a score of tokenizer.json as the tokenizers package reads it: its reader divides the
// digits by a power of ten, so the last bit may differ from the nearest double, which can decide
// ties.
[[nodiscard]] double score_as_read(double score);

// Splits a word into the pieces with the largest sum of scores, as in the tokenizers package.
class UnigramModel : public CachedModel {
 public:
  // Throws Error(kData), with `where` as prefix, for an empty or oversized vocabulary, a token that
  // is too long, a non-finite score, or an unk_id out of range.
  UnigramModel(UnigramParts parts, const std::string& where);

  [[nodiscard]] std::optional<int32_t> token_to_id(std::string_view token) const override;
  [[nodiscard]] const std::string& id_to_token(int32_t id) const override;
  [[nodiscard]] int64_t count() const override { return static_cast<int64_t>(ids_.size()); }
  [[nodiscard]] int64_t end_id() const override { return static_cast<int64_t>(tokens_.size()); }

 private:
  // The last piece of the best path to a position in the word.
  struct Step {
    double score;
    int32_t id;
    uint32_t start;  // in characters
  };
  struct Character {
    const CharTrie::Step* step;  // after this character from the trie's root; may be null
    char32_t value;
    uint32_t begin;
  };
  struct Lattice {
    std::vector<Character> characters;  // of the word, and its end
    std::vector<Step> steps;            // to each of these positions
    std::vector<Piece> path;            // from the last piece to the first
  };

  void check(const UnigramParts& parts, const std::string& where) const;
  // Throws Error(kData) for a character without a token if the model has no unk_id.
  void segment(std::string_view word, std::vector<Piece>& pieces) const override;
  // Fills lattice.characters; returns the number of the word's characters.
  size_t find_characters(std::string_view word, Lattice& lattice) const;
  void find_best(std::string_view word, Lattice& lattice) const;
  void append_unknown(std::string_view word, Piece piece, std::vector<Piece>& pieces) const;

  std::vector<std::string> tokens_;                    // by id
  std::unordered_map<std::string_view, int32_t> ids_;  // views into tokens_; the last of equal ones
  std::vector<double> scores_;                         // by id
  CharTrie trie_;
  double unk_score_ = 0;
  int32_t unk_id_ = -1;
  std::optional<std::array<int32_t, 256>> fallback_ids_;
};

}  // namespace finetune::tokenizer
