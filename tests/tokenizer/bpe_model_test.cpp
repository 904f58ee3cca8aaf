// SPDX-License-Identifier: MIT
#include "tokenizer/models/bpe_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <thread>

#include "finetune/base/error.h"
#include "support/golden.h"

namespace finetune::tokenizer {
namespace {

using ::testing::ElementsAre;

BpeParts letters() {
  BpeParts parts;
  const char* tokens[] = {"a", "b", "c", "aa", "ab", "abc", "aaaa", "bc"};
  for (int32_t id = 0; id < 8; ++id) parts.vocabulary.emplace_back(tokens[id], id);
  parts.merges = {{"b", "c"}, {"a", "a"}, {"aa", "aa"}, {"a", "b"}, {"a", "bc"}};
  return parts;
}

std::vector<int32_t> encode(const BpeModel& model, std::string_view word) {
  std::vector<int32_t> ids;
  model.append_ids(word, ids);
  return ids;
}

// Follows the definition: merges the leftmost pair of the lowest rank until there is none.
std::vector<int32_t> by_definition(const BpeParts& parts, std::string_view word) {
  const std::map<std::string, int32_t> ids(parts.vocabulary.begin(), parts.vocabulary.end());
  std::vector<std::string> symbols;
  for (const char c : word) symbols.emplace_back(1, c);
  for (bool merged = true; merged;) {
    merged = false;
    for (const auto& [left, right] : parts.merges) {
      for (size_t i = 0; i + 1 < symbols.size() && !merged; ++i) {
        if (symbols[i] != left || symbols[i + 1] != right) continue;
        symbols[i] += right;
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        merged = true;
      }
      if (merged) break;
    }
  }
  std::vector<int32_t> result;
  for (const std::string& symbol : symbols) result.push_back(ids.at(symbol));
  return result;
}

TEST(BpeModel, MergesTheLowestRankFirst) {
  const BpeModel model(letters(), "test");
  EXPECT_THAT(encode(model, "abc"), ElementsAre(5));
  EXPECT_THAT(encode(model, "aaabb"), ElementsAre(3, 4, 1));
}

TEST(BpeModel, EncodesShortAndLongWordsByTheSameRule) {
  const BpeParts parts = letters();
  const BpeModel model(letters(), "test");
  uint32_t state = 1;
  for (size_t length = 1; length < 130; ++length) {
    std::string word;
    for (size_t i = 0; i < length; ++i) {
      state = state * 1664525 + 1013904223;
      word += "aaabc"[(state >> 16) % 5];
    }
    EXPECT_EQ(encode(model, word), by_definition(parts, word)) << word;
    EXPECT_EQ(encode(model, word), by_definition(parts, word)) << "from the cache";
  }
}

TEST(BpeModel, EncodesAWordOfAMegabyteInSeconds) {
  const BpeModel model(letters(), "test");
  const std::string word(1 << 20, 'a');
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(encode(model, word).size(), word.size() / 4);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(BpeModel, KeepsTheWordsOfTwoModelsApart) {
  const BpeModel one(letters(), "test");
  BpeParts parts = letters();
  parts.merges.clear();
  const BpeModel other(std::move(parts), "test");
  EXPECT_THAT(encode(one, "ab"), ElementsAre(4));
  EXPECT_THAT(encode(other, "ab"), ElementsAre(0, 1));
  EXPECT_THAT(encode(one, "ab"), ElementsAre(4));
}

TEST(BpeModel, IsSafeToShareBetweenThreads) {
  const BpeModel model(letters(), "test");
  std::vector<std::vector<int32_t>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) model.append_ids(std::string(1 + i % 70, 'a') + "bc", result);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

TEST(BpeModel, GoesOnWhenItsCacheIsFull) {
  const BpeModel model(letters(), "test");
  const BpeParts parts = letters();
  for (int number = 0; number < 70000; ++number) {
    std::string word;
    for (int n = number; n > 0; n /= 3) word += "abc"[n % 3];
    if (!word.empty()) encode(model, word);
  }
  EXPECT_EQ(encode(model, "aabca"), by_definition(parts, "aabca"));
}

template <class Change>
std::string refusal_of_bpe(const Change& change) {
  BpeParts parts = letters();
  change(parts);
  try {
    const BpeModel model(std::move(parts), "x/tokenizer.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(BpeModel, RefusesTwoTokensWithOneId) {
  EXPECT_GOLDEN(refusal_of_bpe([](BpeParts& parts) { parts.vocabulary[1].second = 0; }));
}

TEST(BpeModel, RefusesATokenThatIsThereTwice) {
  EXPECT_GOLDEN(refusal_of_bpe([](BpeParts& parts) { parts.vocabulary[1].first = "a"; }));
}

TEST(BpeModel, RefusesAMergeWhoseResultIsMissing) {
  EXPECT_GOLDEN(refusal_of_bpe([](BpeParts& parts) { parts.merges.push_back({"c", "c"}); }));
}

TEST(BpeModel, RefusesAMergeWhosePartIsMissing) {
  EXPECT_GOLDEN(refusal_of_bpe([](BpeParts& parts) { parts.merges[0].first = "zz"; }));
}

TEST(BpeModel, RefusesAnIdBeyondTheLimit) {
  EXPECT_GOLDEN(refusal_of_bpe([](BpeParts& parts) { parts.vocabulary[0].second = 4'000'000; }));
}

TEST(BpeModel, RefusesATokenBeyondTheLimit) {
  EXPECT_GOLDEN(
      refusal_of_bpe([](BpeParts& parts) { parts.vocabulary[0].first.assign(70000, 'x'); }));
}

TEST(BpeModel, RefusesAnUnknownTokenThatIsMissing) {
  EXPECT_GOLDEN(refusal_of_bpe([](BpeParts& parts) { parts.unk_token = "?"; }));
}

using Answer = std::vector<std::array<uint32_t, 3>>;  // id, begin, end

Answer pieces(const BpeModel& model, std::string_view word) {
  std::vector<Piece> pieces;
  model.tokenize(word, pieces);
  Answer answer;
  for (const Piece& piece : pieces) {
    answer.push_back({static_cast<uint32_t>(piece.id), piece.begin, piece.end});
  }
  return answer;
}

// Expected values: the tokenizers package with the same models and words.

TEST(BpeModel, FallsBackToBytes) {
  BpeParts parts;
  parts.vocabulary = {{"<unk>", 0},  {"a", 1},      {"b", 2},     {"ab", 3},
                      {"<0xC3>", 4}, {"<0xA9>", 5}, {"<0xE2>", 6}};
  parts.merges = {{"a", "b"}};
  parts.unk_token = "<unk>";
  parts.byte_fallback = true;
  parts.fuse_unk = true;
  parts.byte_level = false;
  const BpeModel fused(parts, "test");
  EXPECT_EQ(pieces(fused, "ab\u00E9\u20ACb"),
            (Answer{{3, 0, 2}, {4, 2, 3}, {5, 3, 4}, {0, 4, 7}, {2, 7, 8}}));
  EXPECT_EQ(pieces(fused, "\u20AC\u00E9\u20AC"), (Answer{{4, 0, 1}, {5, 1, 2}, {0, 2, 8}}));
  parts.fuse_unk = false;
  const BpeModel single(parts, "test");
  EXPECT_EQ(pieces(single, "\u20AC\u00E9\u20AC"),
            (Answer{{4, 0, 1}, {5, 1, 2}, {0, 2, 5}, {0, 5, 8}}));
  EXPECT_EQ(pieces(single, "\u20AC\u20AC\u00E9"),
            (Answer{{0, 0, 3}, {4, 3, 4}, {5, 4, 5}, {0, 5, 8}}));
}

// As Llama 2 has it, whose text is one word: parts are segmented each by itself where no merge
// joins them, with the pieces of the whole.
TEST(BpeModel, CutsATextAtItsWordsWhereNoMergeCrossesThem) {
  BpeParts parts;
  parts.vocabulary = {{"<unk>", 0}, {"▁", 1},  {"a", 2},  {"b", 3},
                      {"ab", 4},    {"▁a", 5}, {"▁▁", 6}, {"▁▁ab", 7}};
  parts.merges = {{"a", "b"}, {"▁", "▁"}, {"▁▁", "ab"}, {"▁", "a"}};
  parts.unk_token = "<unk>";
  parts.fuse_unk = true;
  parts.byte_level = false;
  const BpeModel model(parts, "test");
  const std::string text = "▁ab▁▁ab▁xé▁▁▁a";
  EXPECT_EQ(
      pieces(model, text),
      (Answer{
          {1, 0, 3}, {4, 3, 5}, {7, 5, 13}, {1, 13, 16}, {0, 16, 19}, {6, 19, 25}, {5, 25, 29}}));
  std::vector<int32_t> ids;
  model.append_ids(text, ids);
  EXPECT_THAT(ids, ElementsAre(1, 4, 7, 1, 0, 6, 5));

  parts.vocabulary.emplace_back("b▁", 8);
  parts.merges.emplace(parts.merges.begin(), "b", "▁");
  const BpeModel joining(parts, "test");
  EXPECT_EQ(pieces(joining, "ab▁a"), (Answer{{2, 0, 1}, {8, 1, 5}, {2, 5, 6}}));
}

TEST(BpeModel, PutsThePrefixBeforeAllCharactersButTheFirst) {
  BpeParts parts;
  parts.vocabulary = {{"[UNK]", 0}, {"a", 1}, {"##b", 2}, {"ab", 3},  {"##c", 4},
                      {"##b##", 5}, {"b", 6}, {"abc", 7}, {"##bc", 8}};
  parts.merges = {{"##b", "##c"}, {"a", "##bc"}, {"a", "##b"}};
  parts.unk_token = "[UNK]";
  parts.continuing_subword_prefix = "##";
  parts.byte_level = false;
  const BpeModel model(parts, "test");
  EXPECT_EQ(pieces(model, "abc"), (Answer{{7, 0, 3}}));
  EXPECT_EQ(pieces(model, "abb"), (Answer{{3, 0, 2}, {2, 2, 3}}));
  EXPECT_EQ(pieces(model, "axab"), (Answer{{1, 0, 1}, {0, 1, 2}, {0, 2, 3}, {2, 3, 4}}));
  EXPECT_EQ(pieces(model, "xx"), (Answer{{0, 0, 1}, {0, 1, 2}}));
}

TEST(BpeModel, PutsTheSuffixBehindTheLastCharacter) {
  BpeParts parts;
  parts.vocabulary = {{"a", 0}, {"b", 1}, {"a</w>", 2}, {"b</w>", 3}, {"ab</w>", 4}, {"ab", 5}};
  parts.merges = {{"a", "b</w>"}, {"a", "b"}};
  parts.end_of_word_suffix = "</w>";
  for (const bool byte_level : {false, true}) {
    parts.byte_level = byte_level;
    const BpeModel model(parts, "test");
    EXPECT_EQ(pieces(model, "ab"), (Answer{{4, 0, 2}}));
    EXPECT_EQ(pieces(model, "aba"), (Answer{{5, 0, 2}, {2, 2, 3}}));
    EXPECT_EQ(pieces(model, "a"), (Answer{{2, 0, 1}}));
    EXPECT_EQ(pieces(model, "axb"), (Answer{{4, 0, 2}})) << "what has no token leaves no gap";
    EXPECT_EQ(pieces(model, "\u00E9"), Answer{});
  }
}

TEST(BpeModel, TakesAWholeWordBeforeItsMergesWhereItIsToldTo) {
  BpeParts parts;
  parts.vocabulary = {{"a", 0}, {"b", 1}, {"ab", 2}, {"\u0120", 3}, {"\u0120ab", 4}};
  parts.ignore_merges = true;
  parts.byte_level = false;
  EXPECT_EQ(pieces(BpeModel(parts, "test"), "ab"), (Answer{{2, 0, 2}}));
  EXPECT_EQ(pieces(BpeModel(parts, "test"), "aba"), (Answer{{0, 0, 1}, {1, 1, 2}, {0, 2, 3}}));
  parts.byte_level = true;
  EXPECT_EQ(pieces(BpeModel(parts, "test"), " ab"), (Answer{{4, 0, 3}}));
  EXPECT_EQ(pieces(BpeModel(parts, "test"), " aba"),
            (Answer{{3, 0, 1}, {0, 1, 2}, {1, 2, 3}, {0, 3, 4}}));
}

TEST(BpeModel, GivesTheSameRangesToShortAndLongWords) {
  const BpeModel model(letters(), "test");
  const Answer once = pieces(model, "aabcab");
  std::string word;
  Answer expected;
  for (uint32_t i = 0; i < 30; ++i) {
    for (const auto& [id, begin, end] : once) expected.push_back({id, begin + 6 * i, end + 6 * i});
    word += "aabcab";
  }
  EXPECT_EQ(once, (Answer{{3, 0, 2}, {7, 2, 4}, {4, 4, 6}}));
  EXPECT_EQ(pieces(model, word), expected);
}

TEST(BpeModel, RefusesAMergeWithoutThePrefix) {
  EXPECT_GOLDEN(refusal_of_bpe([](BpeParts& parts) { parts.continuing_subword_prefix = "##"; }));
}

TEST(BpeModel, RefusesALongPrefixOrSuffix) {
  EXPECT_GOLDEN(
      refusal_of_bpe([](BpeParts& parts) { parts.continuing_subword_prefix.assign(65, '#'); }));
  EXPECT_GOLDEN(refusal_of_bpe([](BpeParts& parts) { parts.end_of_word_suffix.assign(65, '#'); }));
}

TEST(BpeModel, KeepsWordsOfMorePiecesThanBytesApart) {
  BpeParts parts;
  parts.vocabulary = {{"<0x78>", 0}, {"<0x79>", 1}};
  parts.end_of_word_suffix.assign(64, 'y');
  parts.byte_fallback = true;
  parts.byte_level = false;
  const BpeModel model(std::move(parts), "test");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(encode(model, "x").size(), 65U);
    EXPECT_EQ(encode(model, "y").size(), 65U);
  }
}

}  // namespace
}  // namespace finetune::tokenizer
