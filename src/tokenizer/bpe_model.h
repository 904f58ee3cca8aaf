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

namespace finetune::tokenizer {

// What a BPE model is made of, as its files spell it (byte-level characters).
struct BpeParts {
  std::vector<std::pair<std::string, int32_t>> vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;  // by rank
  std::optional<std::string> unk_token;
  bool fuse_unk = false;
  bool ignore_merges = false;
};

// Byte-level BPE: a word's bytes -> ids, by merging the pair of lowest rank first. Immutable and
// safe to share; each thread keeps a bounded cache of words.
class BpeModel {
 public:
  // Throws Error(kData) for an id or token that is there twice, a token that is too long, a merge
  // whose parts or result are not in the vocabulary. `where` starts the message.
  BpeModel(BpeParts parts, const std::string& where);

  void encode_word(std::string_view word, std::vector<int32_t>& ids) const;

  [[nodiscard]] std::optional<int32_t> token_to_id(std::string_view token) const;
  [[nodiscard]] const std::string& id_to_token(int32_t id) const;  // empty where unused
  [[nodiscard]] int64_t count() const { return static_cast<int64_t>(ids_.size()); }
  [[nodiscard]] int64_t end_id() const { return static_cast<int64_t>(tokens_.size()); }

 private:
  struct Merge {
    uint64_t pair;
    int32_t rank;
    int32_t id;
  };

  void add_vocabulary(std::vector<std::pair<std::string, int32_t>> vocabulary,
                      const std::string& where);
  void add_merges(const std::vector<std::pair<std::string, std::string>>& merges,
                  const std::string& where);
  [[nodiscard]] const Merge* find_merge(int32_t left, int32_t right) const;
  void merge_word(std::string_view word, std::vector<int32_t>& ids) const;
  void start_symbols(std::string_view word, std::vector<int32_t>& symbols) const;
  void merge_short(std::vector<int32_t>& symbols) const;
  void merge_long(std::vector<int32_t>& symbols) const;

  std::vector<std::string> tokens_;                    // by id
  std::unordered_map<std::string_view, int32_t> ids_;  // views into tokens_
  std::vector<Merge> merges_;                          // open addressing
  uint64_t merge_mask_ = 0;
  std::array<int32_t, 256> byte_ids_{};
  int32_t unk_id_ = -1;
  bool fuse_unk_ = false;
  bool ignore_merges_ = false;
  uint64_t serial_ = 0;  // tells the threads' caches whose words they hold
};

}  // namespace finetune::tokenizer
