// SPDX-License-Identifier: MIT
#include "finetune/tokenizer/truncation.h"

#include <gtest/gtest.h>

namespace finetune {
namespace {

using Lengths = PairLengths;

TEST(Truncate, LeavesWhatFits) {
  EXPECT_EQ(truncate({3, 4}, 7, Truncation::kLongestFirst), (Lengths{3, 4}));
  EXPECT_EQ(truncate({3, 4}, 8, Truncation::kOnlySecond), (Lengths{3, 4}));
}

TEST(Truncate, CutsTheLongerTextFirst) {
  EXPECT_EQ(truncate({10, 3}, 8, Truncation::kLongestFirst), (Lengths{5, 3}));
  EXPECT_EQ(truncate({3, 10}, 8, Truncation::kLongestFirst), (Lengths{3, 5}));
  EXPECT_EQ(truncate({20, 0}, 8, Truncation::kLongestFirst), (Lengths{8, 0}));
}

// In tokenizers 0.23.3 the shorter text gets the smaller half.
TEST(Truncate, HalvesTheRoomWhereBothTextsAreLonger) {
  EXPECT_EQ(truncate({9, 12}, 7, Truncation::kLongestFirst), (Lengths{3, 4}));
  EXPECT_EQ(truncate({12, 9}, 7, Truncation::kLongestFirst), (Lengths{4, 3}));
  EXPECT_EQ(truncate({9, 9}, 7, Truncation::kLongestFirst), (Lengths{3, 4}));
  EXPECT_EQ(truncate({4, 4}, 6, Truncation::kLongestFirst), (Lengths{3, 3}));
}

TEST(Truncate, CutsOneTextAlone) {
  EXPECT_EQ(truncate({10, 3}, 8, Truncation::kOnlyFirst), (Lengths{5, 3}));
  EXPECT_EQ(truncate({3, 10}, 8, Truncation::kOnlySecond), (Lengths{3, 5}));
}

TEST(Truncate, FailsWhereTheOtherTextLeavesNoRoom) {
  EXPECT_EQ(truncate({10, 8}, 8, Truncation::kOnlyFirst), std::nullopt);
  EXPECT_EQ(truncate({8, 10}, 8, Truncation::kOnlySecond), std::nullopt);
  EXPECT_EQ(truncate({9, 0}, 8, Truncation::kOnlySecond), std::nullopt);
}

TEST(Truncate, KeepsNothingWithoutRoom) {
  EXPECT_EQ(truncate({9, 4}, 0, Truncation::kLongestFirst), (Lengths{0, 0}));
  EXPECT_EQ(truncate({9, 4}, -3, Truncation::kOnlyFirst), (Lengths{0, 0}));
}

}  // namespace
}  // namespace finetune
