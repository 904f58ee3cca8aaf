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

namespace finetune::tokenizer {

// The content of a BPE model as in its files.
struct BpeParts {
  std::vector<std::pair<std::string, int32_t>> vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;  // by rank
  std::optional<std::string> unk_token{};
  std::string continuing_subword_prefix{};  // of all characters of a word but the first
  std::string end_of_word_suffix{};         // of the last character
  bool fuse_unk = false;
  bool byte_fallback = false;  // <0x0A> etc. for the bytes of a character without a token
  bool ignore_merges = false;  // a word that is in the vocabulary is one token
  // Words are bytes, and the vocabulary spells them in byte-level characters.
  bool byte_level = true;
};

// Splits a word into pieces by merging the pair of lowest rank first.
class BpeModel : public CachedModel {
 public:
  // Throws Error(kData), with `where` as prefix, for a duplicate id or token, a token that is too
  // long, a merge whose parts or result are not in the vocabulary, a prefix or suffix above 64
  // bytes.
  BpeModel(BpeParts parts, const std::string& where);

  [[nodiscard]] std::optional<int32_t> token_to_id(std::string_view token) const override;
  [[nodiscard]] const std::string& id_to_token(int32_t id) const override;
  [[nodiscard]] int64_t count() const override { return static_cast<int64_t>(ids_.size()); }
  [[nodiscard]] int64_t end_id() const override { return static_cast<int64_t>(tokens_.size()); }

 private:
  // A token and the number of the word's bytes that it covers.
  struct Symbol {
    int32_t id;
    uint32_t size;
  };

  void segment(std::string_view word, std::vector<Piece>& pieces) const override;
  void segment_characters(std::string_view word, std::vector<Piece>& pieces) const;
  void add_vocabulary(std::vector<std::pair<std::string, int32_t>> vocabulary,
                      const std::string& where);
  void add_merges(const std::vector<std::pair<std::string, std::string>>& merges,
                  const std::string& where);
  // Whether no merge joins what comes before a word's "▁" with it, so that words between spaces
  // are independent: the vocabularies that SentencePiece makes.
  [[nodiscard]] bool merges_within_words(
      const std::vector<std::pair<std::string, std::string>>& merges) const;
  [[nodiscard]] uint64_t pair_key(int32_t left, int32_t right) const {
    return uint64_t{static_cast<uint32_t>(left)} << id_bits_ | static_cast<uint32_t>(right);
  }
  // Returns the rank of the merge of two tokens; kNoRank if they are not merged.
  [[nodiscard]] uint32_t find_rank(int32_t left, int32_t right) const;
  void start_symbols(std::string_view word, std::vector<Symbol>& symbols) const;
  [[nodiscard]] bool append_bytes(std::string_view character, std::vector<Symbol>& symbols) const;
  void merge(std::vector<Symbol>& symbols) const;
  void merge_short(std::vector<Symbol>& symbols) const;
  void merge_long(std::vector<Symbol>& symbols) const;

  std::vector<std::string> tokens_;                    // by id
  std::unordered_map<std::string_view, int32_t> ids_;  // views into tokens_
  // Open addressing; an entry is a pair of ids and its rank in one number, because the table should
  // fit a core's cache.
  std::vector<uint64_t> merges_;
  uint64_t merge_mask_ = 0;
  // A bit for some bits of each merge's hash: most pairs have no merge, and this is smaller still.
  std::vector<uint64_t> may_merge_;
  int id_bits_ = 0;
  int rank_bits_ = 0;
  std::vector<int32_t> results_;  // the merged token by rank
  std::string prefix_;
  std::string suffix_;
  int32_t unk_id_ = -1;
  bool fuse_unk_ = false;
  bool ignore_merges_ = false;
  bool byte_level_ = false;
  // Ids of the byte-level characters; set only if all exist and there is no prefix or suffix.
  std::optional<std::array<int32_t, 256>> byte_ids_;
  std::optional<std::array<int32_t, 256>> fallback_ids_;
};

}  // namespace finetune::tokenizer
