// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace finetune::tokenizer {

// The words that byte-level merges join to one token, so that such a word costs one look-up instead
// of a merge for each of its bytes. Most words of a text are such words.
class WholeWords {
 public:
  struct Merge {
    int32_t left, right, result;
  };
  // The rank of a pair, below 0 where there is none.
  using RankOf = std::function<int32_t(int32_t left, int32_t right)>;

  // `merges` by rank; `end_id` is 1 + the largest id. Holds no word where the merges are not as a
  // training makes them (each of two tokens that are bytes or results of earlier merges, each with
  // a result of its own): then which merge follows which is not known beforehand.
  WholeWords(const std::array<int32_t, 256>& byte_ids, const std::vector<Merge>& merges,
             int32_t end_id, const RankOf& rank_of);

  // The token that the merges make of `word`; -1 where they make several, or it is not known.
  [[nodiscard]] int32_t find(std::string_view word) const;
  [[nodiscard]] size_t size() const { return count_; }

 private:
  WholeWords() = default;  // no word
  struct Slot {
    uint32_t check = 0;  // the high half of the word's hash
    int32_t id = -1;     // -1: empty
  };

  void insert(int32_t id);
  [[nodiscard]] std::string_view word_of(int32_t id) const {
    const auto index = static_cast<size_t>(id);
    return {bytes_.data() + starts_[index], sizes_[index]};
  }

  std::vector<char> bytes_;       // of all tokens that merges make
  std::vector<uint32_t> starts_;  // by id
  std::vector<uint32_t> sizes_;
  std::vector<Slot> slots_;  // open addressing
  size_t count_ = 0;
};

}  // namespace finetune::tokenizer
