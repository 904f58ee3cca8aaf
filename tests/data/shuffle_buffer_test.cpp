// SPDX-License-Identifier: MIT
#include "data/streaming/shuffle_buffer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

namespace finetune {
namespace {

using ::testing::ElementsAre;

// Returns all outputs of an epoch, requested at once.
std::vector<int64_t> order_of(int64_t samples, int64_t size, uint64_t seed = 42,
                              int64_t epoch = 0) {
  ShuffleBuffer buffer(size, seed);
  std::vector<int64_t> order;
  buffer.append(epoch, 0, samples, samples, order);
  return order;
}

TEST(ShuffleBuffer, HandsOutEverySampleOnceAndNoneBeforeItCameIn) {
  for (const int64_t samples : {1, 2, 7, 50, 333}) {
    for (const int64_t size : {1, 2, 7, 49, 50, 51, 1000}) {
      const std::vector<int64_t> order = order_of(samples, size);
      std::vector<int64_t> sorted = order;
      std::ranges::sort(sorted);
      std::vector<int64_t> all(static_cast<size_t>(samples));
      std::iota(all.begin(), all.end(), 0);
      ASSERT_EQ(sorted, all) << samples << " " << size;
      for (int64_t position = 0; position < samples; ++position) {
        ASSERT_LT(order[static_cast<size_t>(position)], position + size);
      }
    }
  }
}

TEST(ShuffleBuffer, KeepsTheOrderOfTheStreamWithASingleSample) {
  EXPECT_THAT(order_of(5, 1), ElementsAre(0, 1, 2, 3, 4));
}

TEST(ShuffleBuffer, IsAFunctionOfSeedAndEpoch) {
  EXPECT_EQ(order_of(300, 20), order_of(300, 20));
  EXPECT_NE(order_of(300, 20), order_of(300, 20, 43));
  EXPECT_NE(order_of(300, 20), order_of(300, 20, 42, 1));
  EXPECT_NE(order_of(300, 20), order_of(300, 21));
}

// Part of the checkpoint format.
TEST(ShuffleBuffer, HasTheOrderThatCheckpointsRelyOn) {
  EXPECT_THAT(order_of(12, 4), ElementsAre(3, 4, 2, 6, 0, 8, 9, 7, 10, 11, 1, 5));
}

TEST(ShuffleBuffer, GivesTheSameOrderFromAnyPositionInAnySteps) {
  constexpr int64_t kSamples = 300;
  constexpr int64_t kSize = 24;
  const std::vector<int64_t> expected = order_of(kSamples, kSize);
  ShuffleBuffer buffer(kSize, 42);  // one for all requests: it jumps forward and back
  for (int64_t begin = 0; begin < kSamples; begin += 13) {
    for (const int64_t count : {1, 5, 40}) {
      const int64_t end = std::min(begin + count, kSamples);
      // With the minimum and the maximum of known samples.
      for (const int64_t known : {std::min(end + kSize, kSamples), kSamples}) {
        std::vector<int64_t> part;
        buffer.append(0, begin, end, known, part);
        ASSERT_EQ(part, std::vector<int64_t>(expected.begin() + begin, expected.begin() + end))
            << begin << " " << end << " " << known;
      }
    }
  }
}

TEST(ShuffleBuffer, HoldsWhatCameInAndWasNotHandedOut) {
  for (const int64_t samples : {10, 24, 200}) {
    constexpr int64_t kSize = 24;
    const std::vector<int64_t> order = order_of(samples, kSize);
    ShuffleBuffer buffer(kSize, 42);
    for (int64_t position = 0; position <= samples; ++position) {
      std::set<int64_t> expected;
      for (int64_t i = 0; i < std::min(position + kSize, samples); ++i) expected.insert(i);
      for (int64_t i = 0; i < position; ++i) expected.erase(order[static_cast<size_t>(i)]);
      const std::vector<int64_t>& content = buffer.content_at(0, position, samples);
      ASSERT_EQ(content.size(), expected.size()) << position;
      ASSERT_EQ(std::set<int64_t>(content.begin(), content.end()), expected) << position;
    }
  }
}

// In a buffer of n samples, a sample stays for n outputs on average: the order is shuffled as
// widely as the buffer allows.
TEST(ShuffleBuffer, KeepsSamplesForAsLongAsItIsLarge) {
  constexpr int64_t kSamples = 100'000;
  constexpr int64_t kSize = 100;
  const std::vector<int64_t> order = order_of(kSamples, kSize);
  double stays = 0.0;
  int64_t counted = 0;
  for (int64_t position = 0; position < kSamples; ++position) {
    const int64_t sample = order[static_cast<size_t>(position)];
    if (sample < kSize || position > kSamples - 20 * kSize) continue;
    stays += static_cast<double>(position - (sample - kSize));
    ++counted;
  }
  EXPECT_NEAR(stays / static_cast<double>(counted), kSize, 3.0);
}

}  // namespace
}  // namespace finetune
