// SPDX-License-Identifier: MIT
#include "tokenizer/bpe_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "finetune/base/error.h"

namespace finetune::tokenizer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

BpeParts letters() {
  BpeParts parts;
  const char* tokens[] = {"a", "b", "c", "aa", "ab", "abc", "aaaa", "bc"};
  for (int32_t id = 0; id < 8; ++id) parts.vocabulary.emplace_back(tokens[id], id);
  parts.merges = {{"b", "c"}, {"a", "a"}, {"aa", "aa"}, {"a", "b"}, {"a", "bc"}};
  return parts;
}

std::vector<int32_t> encode(const BpeModel& model, std::string_view word) {
  std::vector<int32_t> ids;
  model.encode_word(word, ids);
  return ids;
}

// Straight from the definition: the leftmost pair of the lowest rank, until there is none.
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
      for (int i = 0; i < 2000; ++i) model.encode_word(std::string(1 + i % 70, 'a') + "bc", result);
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
std::string message_of(const Change& change) {
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
  EXPECT_THAT(message_of([](BpeParts& parts) { parts.vocabulary[1].second = 0; }),
              HasSubstr("x/tokenizer.json: the tokens 'a' and 'b' both have the id 0"));
}

TEST(BpeModel, RefusesATokenThatIsThereTwice) {
  EXPECT_THAT(message_of([](BpeParts& parts) { parts.vocabulary[1].first = "a"; }),
              HasSubstr("the token 'a' is in the vocabulary twice"));
}

TEST(BpeModel, RefusesAMergeWhoseResultIsMissing) {
  EXPECT_THAT(message_of([](BpeParts& parts) {
                parts.merges.push_back({"c", "c"});
              }),
              HasSubstr("merge 6 ('c' and 'c') needs the token 'cc'"));
}

TEST(BpeModel, RefusesAMergeWhosePartIsMissing) {
  EXPECT_THAT(message_of([](BpeParts& parts) { parts.merges[0].first = "zz"; }),
              HasSubstr("needs the token 'zz', which is not in the vocabulary"));
}

TEST(BpeModel, RefusesAnIdBeyondTheLimit) {
  EXPECT_THAT(message_of([](BpeParts& parts) { parts.vocabulary[0].second = 4'000'000; }),
              HasSubstr("has the id 4000000"));
}

TEST(BpeModel, RefusesATokenBeyondTheLimit) {
  EXPECT_THAT(message_of([](BpeParts& parts) { parts.vocabulary[0].first.assign(70000, 'x'); }),
              HasSubstr("longer than 65536 bytes"));
}

TEST(BpeModel, RefusesAnUnknownTokenThatIsMissing) {
  EXPECT_THAT(message_of([](BpeParts& parts) { parts.unk_token = "?"; }),
              HasSubstr("the unk_token '?' is not in the vocabulary"));
}

}  // namespace
}  // namespace finetune::tokenizer
