// SPDX-License-Identifier: MIT
#include "tokenizer/whole_words.h"

#include <algorithm>

#include "tokenizer/word_cache.h"

namespace finetune::tokenizer {
namespace {

constexpr size_t kMostBytes = size_t{1} << 30;
constexpr int32_t kByte = -1;
constexpr int32_t kNeverMade = -2;

// How each token is made.
struct Making {
  std::vector<int32_t> rank;  // by id
  std::vector<int32_t> left, right;

  explicit Making(size_t tokens) : rank(tokens, kNeverMade), left(tokens, -1), right(tokens, -1) {}

  // Whether, while the bytes of `a` and `b` become these two tokens by merges below `limit`, none
  // of them joins the end of one with the start of the other. Goes back in time: at the boundary
  // are the last part of `a` and the first of `b` that existed, and the token that was made last is
  // taken apart first. A pair is joined if its rank is below the merge that takes its left token
  // away; of equal ones the leftmost comes first.
  [[nodiscard]] bool stay_apart(int32_t a, int32_t b, int32_t limit,
                                const WholeWords::RankOf& rank_of) const {
    int32_t left_limit = limit;
    int32_t right_limit = limit;
    while (true) {
      const int32_t rank_a = rank[static_cast<size_t>(a)];
      const int32_t rank_b = rank[static_cast<size_t>(b)];
      if (rank_a < 0 && rank_b < 0) return true;
      if (rank_a > rank_b) {
        left_limit = rank_a;
        a = right[static_cast<size_t>(a)];
      } else {
        right_limit = rank_b;
        b = left[static_cast<size_t>(b)];
      }
      const int32_t joined = rank_of(a, b);
      if (joined >= 0 && joined < left_limit && joined <= right_limit) return false;
    }
  }
};

}  // namespace

WholeWords::WholeWords(const std::array<int32_t, 256>& byte_ids, const std::vector<Merge>& merges,
                       int32_t end_id, const RankOf& rank_of) {
  const auto tokens = static_cast<size_t>(end_id);
  Making making(tokens);
  starts_.resize(tokens);
  sizes_.resize(tokens);
  for (size_t byte = 0; byte < byte_ids.size(); ++byte) {
    const auto id = static_cast<size_t>(byte_ids[byte]);
    making.rank[id] = kByte;
    starts_[id] = static_cast<uint32_t>(bytes_.size());
    sizes_[id] = 1;
    bytes_.push_back(static_cast<char>(byte));
  }
  std::vector<bool> is_whole(tokens, false);
  for (size_t byte = 0; byte < byte_ids.size(); ++byte) {
    is_whole[static_cast<size_t>(byte_ids[byte])] = true;
  }
  std::vector<int32_t> found;
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto [left, right, result] = merges[i];
    const auto id = static_cast<size_t>(result);
    const auto rank = static_cast<int32_t>(i);
    if (left < 0) {
      *this = WholeWords();
      return;
    }
    const bool is_trained = making.rank[static_cast<size_t>(left)] != kNeverMade &&
                            making.rank[static_cast<size_t>(right)] != kNeverMade &&
                            making.rank[id] == kNeverMade && rank_of(left, right) == rank;
    const size_t size = is_trained ? word_of(left).size() + word_of(right).size() : 0;
    if (!is_trained || bytes_.size() + size > kMostBytes) {
      *this = WholeWords();
      return;
    }
    making.rank[id] = rank;
    making.left[id] = left;
    making.right[id] = right;
    starts_[id] = static_cast<uint32_t>(bytes_.size());
    sizes_[id] = static_cast<uint32_t>(size);
    for (const int32_t part : {left, right}) {
      const std::string_view word = word_of(part);
      bytes_.resize(bytes_.size() + word.size());
      std::copy_n(bytes_.data() + starts_[static_cast<size_t>(part)], word.size(),
                  bytes_.data() + bytes_.size() - word.size());
    }
    is_whole[id] = is_whole[static_cast<size_t>(left)] && is_whole[static_cast<size_t>(right)] &&
                   making.stay_apart(left, right, rank, rank_of);
    if (is_whole[id]) found.push_back(result);
  }
  size_t capacity = 16;
  while (capacity < 2 * found.size()) capacity *= 2;
  slots_.resize(capacity);
  for (const int32_t id : found) insert(id);
}

void WholeWords::insert(int32_t id) {
  const uint64_t hash = hash_word(word_of(id));
  const uint64_t mask = slots_.size() - 1;
  uint64_t slot = hash & mask;
  while (slots_[slot].id >= 0) slot = (slot + 1) & mask;
  slots_[slot] = {static_cast<uint32_t>(hash >> 32), id};
  ++count_;
}

int32_t WholeWords::find(std::string_view word) const {
  if (slots_.empty()) return -1;
  const uint64_t hash = hash_word(word);
  const auto check = static_cast<uint32_t>(hash >> 32);
  const uint64_t mask = slots_.size() - 1;
  for (uint64_t slot = hash & mask; slots_[slot].id >= 0; slot = (slot + 1) & mask) {
    if (slots_[slot].check == check && word_of(slots_[slot].id) == word) return slots_[slot].id;
  }
  return -1;
}

}  // namespace finetune::tokenizer
