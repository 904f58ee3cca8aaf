// SPDX-License-Identifier: MIT
#include "finetune/data/masking.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/temporary_folder.h"
#include "data/byte_tokenizer.h"
#include "finetune/base/error.h"
#include "support/golden.h"

namespace finetune {
namespace {

using testing::ByteTokenizer;
using ::testing::ElementsAre;

struct Masked {
  std::vector<int64_t> ids;
  std::vector<int64_t> labels;
  int64_t targets = 0;
  friend bool operator==(const Masked&, const Masked&) = default;
};

Masked mask(const MaskingOptions& options, SampleKey key, std::vector<int64_t> ids) {
  Masked result{.ids = std::move(ids), .labels = {}};
  result.labels.resize(result.ids.size());
  result.targets = Masking(options).apply(key, result.ids, result.labels);
  return result;
}

MaskingOptions options() { return MaskingOptions::from(ByteTokenizer()); }

// Expects a share within five standard deviations.
void expect_share(int64_t count, int64_t of, double share) {
  const auto n = static_cast<double>(of);
  EXPECT_NEAR(static_cast<double>(count), n * share, 5 * std::sqrt(n * share * (1 - share)));
}

TEST(Masking, ChoosesFifteenPercentAndReplacesThemEightyTenTen) {
  constexpr int64_t kToken = 50;
  constexpr int64_t kTokens = 400000;
  const Masked result =
      mask(options(), {.index = 1, .epoch = 0}, std::vector<int64_t>(kTokens, kToken));
  int64_t chosen = 0, masked = 0, random = 0, kept = 0;
  std::vector<int64_t> words(ByteTokenizer().size());
  for (size_t i = 0; i < result.ids.size(); ++i) {
    if (result.labels[i] == kIgnoredLabel) {
      ASSERT_EQ(result.ids[i], kToken);
      continue;
    }
    ASSERT_EQ(result.labels[i], kToken);
    ++chosen;
    ++words[static_cast<size_t>(result.ids[i])];
    masked += result.ids[i] == ByteTokenizer::kMask ? 1 : 0;
    kept += result.ids[i] == kToken ? 1 : 0;
    random += result.ids[i] != kToken && result.ids[i] != ByteTokenizer::kMask ? 1 : 0;
  }
  EXPECT_EQ(chosen, result.targets);
  expect_share(chosen, kTokens, 0.15);
  // A random token is the mask, or the token itself, with probability 1 / vocabulary each.
  const double once = 0.1 / static_cast<double>(ByteTokenizer().size());
  expect_share(masked, chosen, 0.8 + once);
  expect_share(kept, chosen, 0.1 + once);
  expect_share(random, chosen, 0.1 - 2 * once);
  for (size_t id = 0; id < words.size(); ++id) {
    EXPECT_GT(words[id], 0) << id;
  }
}

TEST(Masking, NeverChoosesSpecialTokens) {
  MaskingOptions all = options();
  all.mlm_probability = 1.0;
  const Masked result = mask(all, {.index = 3, .epoch = 2}, {0, 50, 4, 3, 60, 2, 1});
  EXPECT_THAT(result.labels, ElementsAre(-100, 50, -100, -100, 60, -100, -100));
  EXPECT_EQ(result.targets, 2);
}

TEST(Masking, DependsOnSeedEpochAndSample) {
  const std::vector<int64_t> ids(200, 50);
  const Masked first = mask(options(), {.index = 5, .epoch = 1}, ids);
  EXPECT_EQ(first, mask(options(), {.index = 5, .epoch = 1}, ids));
  EXPECT_NE(first.labels, mask(options(), {.index = 6, .epoch = 1}, ids).labels);
  EXPECT_NE(first.labels, mask(options(), {.index = 5, .epoch = 2}, ids).labels);
  MaskingOptions other = options();
  other.seed = 43;
  EXPECT_NE(first.labels, mask(other, {.index = 5, .epoch = 1}, ids).labels);
}

TEST(Masking, IsNotChangedByWhatFollowsASample) {
  const Masked shorter = mask(options(), {.index = 5, .epoch = 1}, std::vector<int64_t>(50, 50));
  Masked longer = mask(options(), {.index = 5, .epoch = 1}, std::vector<int64_t>(200, 50));
  longer.ids.resize(50);
  EXPECT_EQ(shorter.ids, longer.ids);
}

TEST(Masking, EvaluatesWithMasksOfTheirOwn) {
  const std::vector<int64_t> ids(200, 50);
  const SampleKey evaluation{.index = 0, .epoch = SampleKey::kEvaluation};
  EXPECT_EQ(mask(options(), evaluation, ids), mask(options(), evaluation, ids));
  EXPECT_NE(mask(options(), evaluation, ids).labels,
            mask(options(), {.index = 0, .epoch = 0}, ids).labels);
}

// A resumed run must draw the same masks as an uninterrupted one.
TEST(Masking, KeepsItsValuesForStoredCheckpoints) {
  MaskingOptions half = options();
  half.mlm_probability = 0.5;
  const Masked result =
      mask(half, {.index = 4, .epoch = 3}, {0, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 2});
  EXPECT_THAT(result.ids, ElementsAre(0, 4, 100, 4, 53, 4, 55, 56, 57, 58, 59, 2));
  EXPECT_THAT(result.labels,
              ElementsAre(-100, 50, 51, 52, -100, 54, 55, -100, -100, -100, -100, -100));
}

TEST(Masking, RefusesATokenizerWithoutAMaskToken) {
  EXPECT_GOLDEN(testing::message_of<Error>(
      [] { static_cast<void>(MaskingOptions::from(ByteTokenizer(/*with_mask=*/false))); }));
}

TEST(Masking, RefusesAProbabilityOutsideItsRange) {
  for (const double probability : {0.0, -0.1, 1.1, std::nan("")}) {
    MaskingOptions wrong = options();
    wrong.mlm_probability = probability;
    EXPECT_THROW(Masking{wrong}, Error) << probability;
  }
}

// Ids 10 to 19 begin words; 20 to 29 continue them.
MaskingOptions whole_words() {
  MaskingOptions options;
  options.mask_id = 4;
  options.vocabulary = 30;
  options.special = {1, 1, 1, 1, 1};
  options.continues_word.assign(30, 0);
  std::fill(options.continues_word.begin() + 20, options.continues_word.end(), uint8_t{1});
  return options;
}

TEST(Masking, ChoosesWholeWordsAndMasksAllOfThem) {
  const Masking masking(whole_words());
  int64_t chosen = 0;
  int64_t words = 0;
  for (int64_t sample = 0; sample < 2000; ++sample) {
    // A special token ends a word; a continuing token after it forms a word by itself.
    std::vector<int64_t> ids = {0, 21, 10, 20, 22, 11, 2, 23, 24, 12, 2};
    const std::vector<int64_t> before = ids;
    std::vector<int64_t> labels(ids.size());
    const int64_t targets = masking.apply({.index = sample, .epoch = 3}, ids, labels);
    const std::vector<std::pair<size_t, size_t>> ranges = {{1, 2}, {2, 5}, {5, 6}, {7, 9}, {9, 10}};
    int64_t counted = 0;
    for (const auto& [begin, end] : ranges) {
      ++words;
      chosen += labels[begin] != kIgnoredLabel ? 1 : 0;
      for (size_t i = begin; i < end; ++i) {
        EXPECT_EQ(labels[i] == kIgnoredLabel, labels[begin] == kIgnoredLabel);
        EXPECT_EQ(ids[i], labels[i] == kIgnoredLabel ? before[i] : 4);
        if (labels[i] != kIgnoredLabel) ++counted;
      }
    }
    EXPECT_EQ(targets, counted);
    for (const size_t special : {0, 6, 10}) EXPECT_EQ(labels[special], kIgnoredLabel);
  }
  EXPECT_NEAR(static_cast<double>(chosen) / static_cast<double>(words), 0.15, 0.01);
}

}  // namespace
}  // namespace finetune
