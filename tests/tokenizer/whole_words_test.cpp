// SPDX-License-Identifier: MIT
#include "tokenizer/whole_words.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace finetune::tokenizer {
namespace {

using Merges = std::vector<WholeWords::Merge>;

std::array<int32_t, 256> identity() {
  std::array<int32_t, 256> ids{};
  for (int32_t i = 0; i < 256; ++i) ids[static_cast<size_t>(i)] = i;
  return ids;
}

std::map<std::pair<int32_t, int32_t>, int32_t> ranks_of(const Merges& merges) {
  std::map<std::pair<int32_t, int32_t>, int32_t> ranks;
  for (size_t i = 0; i < merges.size(); ++i) {
    ranks[{merges[i].left, merges[i].right}] = static_cast<int32_t>(i);
  }
  return ranks;
}

WholeWords make_words(const Merges& merges) {
  int32_t end = 256;
  for (const WholeWords::Merge& merge : merges) end = std::max(end, merge.result + 1);
  const auto ranks = ranks_of(merges);
  return {identity(), merges, end, [&](int32_t left, int32_t right) {
            const auto found = ranks.find({left, right});
            return found == ranks.end() ? -1 : found->second;
          }};
}

// By the definition: the leftmost pair of the lowest rank, until there is none.
std::vector<int32_t> merged(const Merges& merges, const std::string& word) {
  const auto ranks = ranks_of(merges);
  std::vector<int32_t> symbols;
  for (const char c : word) symbols.push_back(static_cast<uint8_t>(c));
  while (true) {
    int32_t lowest = -1;
    size_t at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ranks.find({symbols[i], symbols[i + 1]});
      if (found == ranks.end() || (lowest >= 0 && found->second >= lowest)) continue;
      lowest = found->second;
      at = i;
    }
    if (lowest < 0) return symbols;
    symbols[at] = merges[static_cast<size_t>(lowest)].result;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

// Each of two tokens that exist, with a result of its own.
Merges draw_merges(std::mt19937& numbers, int32_t letters, int32_t count) {
  Merges merges;
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < letters; ++i) tokens.push_back('a' + i);
  std::map<std::pair<int32_t, int32_t>, int32_t> used;
  while (std::ssize(merges) < count) {
    const auto draw = [&] { return tokens[numbers() % tokens.size()]; };
    const int32_t left = draw();
    const int32_t right = draw();
    const int32_t result = 256 + static_cast<int32_t>(merges.size());
    if (!used.emplace(std::pair(left, right), result).second) continue;
    merges.push_back({left, right, result});
    tokens.push_back(result);
  }
  return merges;
}

TEST(WholeWords, KnowsExactlyTheWordsThatMergesJoinToOneToken) {
  std::mt19937 numbers(5);
  int64_t whole = 0;
  int64_t never = 0;  // tokens that their own bytes do not become
  for (int32_t turn = 0; turn < 60; ++turn) {
    const int32_t letters = 1 + turn % 3;
    const Merges merges = draw_merges(numbers, letters, 25);
    const WholeWords words = make_words(merges);
    whole += static_cast<int64_t>(words.size());
    never += std::ssize(merges) - static_cast<int64_t>(words.size());
    for (size_t length = 2; length <= (letters == 1 ? 30 : 7); ++length) {
      std::string word(length, 'a');
      while (true) {
        const std::vector<int32_t> ids = merged(merges, word);
        ASSERT_EQ(words.find(word), ids.size() == 1 ? ids[0] : -1) << word << " of turn " << turn;
        size_t place = 0;  // the next word: one more in the number that its letters are
        while (place < length && word[place] == 'a' + letters - 1) word[place++] = 'a';
        if (place == length) break;
        ++word[place];
      }
    }
  }
  EXPECT_GT(whole, 300);
  EXPECT_GT(never, 100);
}

TEST(WholeWords, HasNoneWhereMergesAreNotATrainings) {
  EXPECT_EQ(make_words({{'a', 'b', 256}, {256, 'c', 257}}).size(), 2U);
  // A part that a later merge makes, a result that is there already, a rank whose pair came again.
  EXPECT_EQ(make_words({{256, 'c', 257}, {'a', 'b', 256}}).size(), 0U);
  EXPECT_EQ(make_words({{'a', 'b', 256}, {'b', 'a', 256}}).size(), 0U);
  EXPECT_EQ(make_words({{'a', 'b', 'c'}}).size(), 0U);
  EXPECT_EQ(make_words({{-1, -1, -1}, {'a', 'b', 256}}).size(), 0U);
}

}  // namespace
}  // namespace finetune::tokenizer
