// SPDX-License-Identifier: MIT
#include "tokenizer/models/unigram_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <limits>

#include "finetune/base/error.h"
#include "support/golden.h"

namespace finetune::tokenizer {
namespace {

using ::testing::HasSubstr;

using Answer = std::vector<std::array<uint32_t, 3>>;  // id, begin, end

Answer pieces(const UnigramModel& model, std::string_view word) {
  std::vector<Piece> pieces;
  model.tokenize(word, pieces);
  Answer answer;
  for (const Piece& piece : pieces) {
    answer.push_back({static_cast<uint32_t>(piece.id), piece.begin, piece.end});
  }
  return answer;
}

UnigramModel make(std::vector<std::pair<std::string, double>> vocabulary) {
  return UnigramModel({.vocabulary = std::move(vocabulary), .unk_id = 0}, "test");
}

// Expected values: the tokenizers package with the same models and words.

TEST(UnigramModel, TakesThePiecesOfTheLargestSum) {
  const UnigramModel model = make({{"<unk>", 0},
                                   {"a", 0},
                                   {"b", 0},
                                   {"c", 0},
                                   {"d", 0},
                                   {"cd", 1},
                                   {"ab", 2},
                                   {"abc", 5},
                                   {"abcd", 10}});
  EXPECT_EQ(pieces(model, "abcdacdxx"), (Answer{{8, 0, 4}, {1, 4, 5}, {5, 5, 7}, {0, 7, 9}}));
  EXPECT_EQ(pieces(model, ""), Answer{});
}

TEST(UnigramModel, FusesWhatHasNoToken) {
  const UnigramModel model = make({{"<unk>", 0}, {"a", 0}, {"b", 0}, {"z", 0}});
  EXPECT_EQ(pieces(model, "xyaz"), (Answer{{0, 0, 2}, {1, 2, 3}, {3, 3, 4}}));
  EXPECT_EQ(pieces(model, "a<unk>b"), (Answer{{1, 0, 1}, {0, 1, 6}, {2, 6, 7}}));
  EXPECT_EQ(pieces(model, "<unk>x"), (Answer{{0, 0, 6}}));
}

TEST(UnigramModel, KeepsTheFirstOfEqualWays) {
  const UnigramModel model = make({{"<unk>", 0}, {"a", -1}, {"aa", -2}, {"aaa", -3}});
  EXPECT_EQ(pieces(model, "aaaa"), (Answer{{1, 0, 1}, {3, 1, 4}}));
  EXPECT_EQ(pieces(model, "aaa"), (Answer{{3, 0, 3}}));
}

TEST(UnigramModel, FallsBackToBytes) {
  const UnigramModel model({.vocabulary = {{"<unk>", 0},
                                           {"a", -1},
                                           {"<0xC3>", -2},
                                           {"<0xA9>", -2},
                                           {"<0x78>", -3},
                                           {"\u00E9x", -50}},
                            .unk_id = 0,
                            .byte_fallback = true},
                           "test");
  EXPECT_EQ(pieces(model, "a\u00E9xa"), (Answer{{1, 0, 1}, {5, 1, 4}, {1, 4, 5}}));
  EXPECT_EQ(pieces(model, "x\u00E9"), (Answer{{4, 0, 3}, {2, 0, 3}, {3, 0, 3}}));
  EXPECT_EQ(pieces(model, "\u20AC\u00E9"), (Answer{{0, 0, 5}})) << "not every byte has a token";
}

TEST(UnigramModel, LooksForWhatItFusedInTheVocabulary) {
  const UnigramModel model = make({{"<unk>", 50}, {"xy", 20}, {"a", 60}});
  EXPECT_EQ(pieces(model, "yxy"), (Answer{{0, 0, 1}, {1, 1, 3}}));
  const UnigramModel rare = make({{"<unk>", 0}, {"xy", -100}, {"a", -1}});
  EXPECT_EQ(pieces(rare, "axya"), (Answer{{2, 0, 1}, {1, 1, 3}, {2, 3, 4}}));
}

TEST(UnigramModel, TakesTheLastOfEqualTokens) {
  const UnigramModel model = make({{"<unk>", 0}, {"a", -1}, {"a", -5}, {"aa", -7}});
  EXPECT_EQ(pieces(model, "a"), (Answer{{2, 0, 1}}));
  EXPECT_EQ(pieces(model, "aa"), (Answer{{3, 0, 2}}));
}

// Returns the largest sum over all segmentations of the word.
double best_sum(const std::vector<std::pair<std::string, double>>& vocabulary,
                std::string_view word) {
  std::vector<double> best(word.size() + 1, -std::numeric_limits<double>::infinity());
  best[0] = 0;
  for (size_t start = 0; start < word.size(); ++start) {
    for (const auto& [token, score] : vocabulary) {
      if (token.empty() || !word.substr(start).starts_with(token)) continue;
      best[start + token.size()] = std::max(best[start + token.size()], best[start] + score);
    }
  }
  return best.back();
}

TEST(UnigramModel, FindsTheBestSumInALargeVocabulary) {
  std::vector<std::pair<std::string, double>> vocabulary{{"<unk>", 0}, {"", 1}};
  for (const char c : {'a', 'b', 'c', 'd'}) vocabulary.emplace_back(std::string(1, c), -9);
  uint32_t state = 7;
  const auto draw = [&](uint32_t below) {
    state = state * 1664525 + 1013904223;
    return (state >> 16) % below;
  };
  for (int i = 0; i < 3000; ++i) {
    std::string token;
    for (uint32_t size = 2 + draw(7); size > 0; --size) token += "abcd"[draw(4)];
    vocabulary.emplace_back(token, -5.0 - draw(12));
  }
  std::sort(vocabulary.begin() + 2, vocabulary.end());
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  vocabulary.erase(std::unique(vocabulary.begin() + 2, vocabulary.end(), same), vocabulary.end());
  const UnigramModel model = make(vocabulary);
  for (int i = 0; i < 50; ++i) {
    std::string word;
    for (uint32_t size = 1 + draw(80); size > 0; --size) word += "abcd"[draw(4)];
    double sum = 0;
    std::string joined;
    for (const auto& [id, begin, end] : pieces(model, word)) {
      sum += vocabulary[id].second;
      joined += vocabulary[id].first;
    }
    EXPECT_EQ(joined, word);
    EXPECT_DOUBLE_EQ(sum, best_sum(vocabulary, word)) << word;
  }
}

TEST(UnigramModel, EncodesAWordOfAMegabyteInSeconds) {
  const UnigramModel model = make({{"<unk>", 0}, {"a", -1}, {"aaaa", -2}});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(pieces(model, std::string(1 << 20, 'a')).size(), size_t{1} << 18);
  EXPECT_EQ(pieces(model, std::string(1 << 20, 'x')).size(), 1U);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(UnigramModel, ReadsScoresAsTheTokenizersPackageDoes) {
  EXPECT_EQ(score_as_read(0.0), 0.0);
  EXPECT_EQ(score_as_read(-12.5), -12.5);
  EXPECT_EQ(score_as_read(-3.0e300), -3.0e300);
  EXPECT_EQ(score_as_read(-7.3379044552783705), -7.337904455278371);
  EXPECT_EQ(score_as_read(-7.3500973693961225), -7.350097369396123);
  EXPECT_EQ(score_as_read(-7.4206531733533385), -7.420653173353339);
  EXPECT_EQ(score_as_read(-7.4533122559778455), -7.453312255977845);
  EXPECT_EQ(score_as_read(1.2345678901234568e-300), 1.234567890123457e-300);
  EXPECT_EQ(score_as_read(-9.87654321012347e-310), -9.87654321012347e-310);
  EXPECT_EQ(score_as_read(5e-324), 5e-324);
  EXPECT_EQ(score_as_read(1.7976931348623157e+308), 1.7976931348623157e+308);
  EXPECT_EQ(score_as_read(1.2345678901234568e+17), 1.2345678901234568e+17);
  EXPECT_EQ(score_as_read(-1.0000000000000002), -1.0000000000000002);
  EXPECT_EQ(score_as_read(0.1), 0.1);
  EXPECT_EQ(score_as_read(-2.2250738585072014e-308), -2.2250738585072014e-308);
}

std::string refusal_of_unigram(UnigramParts parts) {
  try {
    const UnigramModel model(std::move(parts), "x/tokenizer.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(UnigramModel, RefusesAnEmptyVocabulary) {
  EXPECT_GOLDEN(refusal_of_unigram({.vocabulary = {}, .unk_id = {}}));
}

TEST(UnigramModel, RefusesAnUnknownIdOutside) {
  EXPECT_GOLDEN(refusal_of_unigram({.vocabulary = {{"a", 0}}, .unk_id = 1}));
  EXPECT_THAT(refusal_of_unigram({.vocabulary = {{"a", 0}}, .unk_id = -1}),
              HasSubstr("the unk_id -1"));
}

TEST(UnigramModel, RefusesAScoreThatIsNotFinite) {
  EXPECT_GOLDEN(refusal_of_unigram(
      {.vocabulary = {{"a", 0}, {"b", std::numeric_limits<double>::infinity()}}, .unk_id = 0}));
}

TEST(UnigramModel, RefusesATokenBeyondTheLimit) {
  EXPECT_GOLDEN(refusal_of_unigram({.vocabulary = {{std::string(70000, 'x'), 0}}, .unk_id = 0}));
}

TEST(UnigramModel, NeedsAnUnknownIdWhereACharacterHasNoToken) {
  const UnigramModel model({.vocabulary = {{"a", 0}}, .unk_id = {}}, "test");
  EXPECT_EQ(pieces(model, "aa"), (Answer{{0, 0, 1}, {0, 1, 2}}));
  EXPECT_THROW(pieces(model, "ab"), Error);
}

}  // namespace
}  // namespace finetune::tokenizer
