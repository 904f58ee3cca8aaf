// SPDX-License-Identifier: MIT
#include "finetune/data/permutation.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace finetune {
namespace {

std::vector<int64_t> all_of(const Permutation& order) {
  std::vector<int64_t> values;
  for (int64_t position = 0; position < order.size(); ++position) values.push_back(order[position]);
  return values;
}

TEST(Permutation, VisitsEverySampleOncePerEpoch) {
  std::vector<int64_t> sizes = {1000, 1023, 1024, 1025, 4097, 65535, 65536, 65537, 100003};
  for (int64_t size = 1; size <= 130; ++size) sizes.push_back(size);
  for (const int64_t size : sizes) {
    std::vector<bool> seen(static_cast<size_t>(size), false);
    for (const int64_t sample : all_of(Permutation(size, 42, 3))) {
      ASSERT_TRUE(sample >= 0 && sample < size) << size;
      ASSERT_FALSE(seen[static_cast<size_t>(sample)]) << size;
      seen[static_cast<size_t>(sample)] = true;
    }
  }
}

TEST(Permutation, DiffersBetweenEpochsAndSeeds) {
  const std::vector<int64_t> first = all_of(Permutation(100, 42, 0));
  EXPECT_NE(first, all_of(Permutation(100, 42, 1)));
  EXPECT_NE(first, all_of(Permutation(100, 43, 0)));
  EXPECT_EQ(first, all_of(Permutation(100, 42, 0)));
}

// Positions in checkpoints become meaningless if these values change.
TEST(Permutation, KeepsItsValuesForStoredCheckpoints) {
  EXPECT_EQ(all_of(Permutation(10, 42, 0)), (std::vector<int64_t>{7, 2, 3, 1, 9, 0, 6, 4, 5, 8}));
  EXPECT_EQ(all_of(Permutation(10, 42, 1)), (std::vector<int64_t>{4, 9, 3, 1, 6, 0, 7, 2, 8, 5}));
  const Permutation large(Permutation::kMaxSize, 7, 2);
  EXPECT_EQ(large[0], 1091261303580);
  EXPECT_EQ(large[Permutation::kMaxSize - 1], 361444713763);
}

TEST(Permutation, PutsEverySampleAtEveryPositionEquallyOften) {
  constexpr int64_t kSize = 12;
  constexpr int kEpochs = 6000;
  int counts[kSize][kSize] = {};
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const Permutation order(kSize, 42, epoch);
    for (int64_t position = 0; position < kSize; ++position) ++counts[position][order[position]];
  }
  double chi_square = 0;
  const double expected = double{kEpochs} / kSize;
  for (const auto& row : counts) {
    for (const int count : row) chi_square += (count - expected) * (count - expected) / expected;
  }
  // 121 degrees of freedom: mean 121, standard deviation 15.6; the bounds are five of them away.
  EXPECT_GT(chi_square, 43);
  EXPECT_LT(chi_square, 199);
}

TEST(Permutation, LeavesNeighboursTogetherNoMoreThanChance) {
  constexpr int64_t kSize = 50000;
  const Permutation order(kSize, 42, 0);
  int together = 0;
  int64_t previous = order[0];
  for (int64_t position = 1; position < kSize; ++position) {
    const int64_t next = order[position];
    if (next == previous + 1) ++together;
    previous = next;
  }
  EXPECT_LT(together, 10);  // expected value: 1
}

TEST(Permutation, RefusesImpossibleSizesAndPositions) {
  EXPECT_THROW(Permutation(0, 1, 0), std::logic_error);
  EXPECT_THROW(Permutation(Permutation::kMaxSize + 1, 1, 0), std::logic_error);
  EXPECT_THROW(static_cast<void>(Permutation(5, 1, 0)[5]), std::logic_error);
}

}  // namespace
}  // namespace finetune
