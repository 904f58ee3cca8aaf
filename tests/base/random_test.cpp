// SPDX-License-Identifier: MIT
#include "finetune/base/random.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

namespace finetune::random {
namespace {

// tests/kat_vectors of Random123 1.14, philox4x32 with 10 rounds.
TEST(Philox, EqualsTheKnownAnswersOfRandom123) {
  using Four = std::array<uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// The generator's published sequence from state 0 (Vigna, splitmix64.c).
TEST(Mix, EqualsTheFirstNumbersOfSplitMix64) {
  EXPECT_EQ(mix(0), 0xe220a8397b1dcdafU);
  EXPECT_EQ(mix(0x9E3779B97F4A7C15), 0x6e789e6aa1b965f4U);
}

TEST(MakeKey, DiffersInEveryCoordinate) {
  std::set<uint64_t> keys;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    for (const Purpose purpose : {Purpose::kOrder, Purpose::kMasking, Purpose::kDropout}) {
      for (uint64_t a = 0; a < 4; ++a) {
        for (uint64_t b = 0; b < 4; ++b) keys.insert(make_key(seed, purpose, a, b));
      }
    }
  }
  EXPECT_EQ(keys.size(), 4U * 3 * 4 * 4);
}

// Part of the checkpoint format.
TEST(Sequence, KeepsItsValuesForStoredCheckpoints) {
  Sequence zero(0);
  EXPECT_EQ(zero.next(), 0x6627e8d5U);
  EXPECT_EQ(zero.next(), 0xe169c58dU);
  Sequence other(make_key(42, Purpose::kMasking, 1, 2));
  std::vector<uint32_t> values;
  for (int i = 0; i < 5; ++i) values.push_back(other.next());
  EXPECT_EQ(values,
            (std::vector<uint32_t>{304955221, 1920747178, 1415694251, 96937442, 2229347572}));
}

TEST(Sequence, DrawsUniformlyBelowABound) {
  Sequence sequence(7);
  constexpr uint32_t kBound = 10;
  constexpr int kDraws = 100000;
  std::array<int, kBound> counts = {};
  for (int i = 0; i < kDraws; ++i) ++counts.at(sequence.below(kBound));
  // Five standard deviations of a share of one tenth.
  for (const int count : counts) EXPECT_NEAR(count, kDraws / 10, 475);
}

TEST(Sequence, DrawsBelowEveryBound) {
  Sequence sequence(7);
  for (const uint32_t bound : {1U, 2U, 3U, 0x80000001U, 0xffffffffU}) {
    for (int i = 0; i < 200; ++i) ASSERT_LT(sequence.below(bound), bound);
  }
}

TEST(Sequence, DrawsNormalNumbersOfMeanZeroAndDeviationOne) {
  Sequence sequence(11);
  constexpr int kDraws = 100000;
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double value = sequence.normal();
    ASSERT_TRUE(std::isfinite(value));
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / kDraws, 0, 5 / std::sqrt(kDraws));
  EXPECT_NEAR(squares / kDraws, 1, 5 * std::sqrt(2.0 / kDraws));
}

}  // namespace
}  // namespace finetune::random
