// SPDX-License-Identifier: MIT
#include "data/loading/sample_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "data/token_samples.h"
#include "finetune/data/permutation.h"

namespace finetune {
namespace {

using testing::samples_of_lengths;
using testing::uneven_lengths;

constexpr int64_t kOrderedSamples = 103;
constexpr int64_t kGroup = 20;
constexpr uint64_t kSeed = 7;

std::vector<int64_t> epoch_of(const SampleOrder& order, int64_t epoch) {
  std::vector<int64_t> samples;
  order.append(epoch, 0, kOrderedSamples, samples);
  return samples;
}

TEST(LengthGroupedOrder, VisitsEverySampleOnce) {
  const auto data = samples_of_lengths(uneven_lengths(kOrderedSamples));
  const auto order = make_length_grouped_order(*data, kGroup, kSeed);
  std::vector<int64_t> samples = epoch_of(*order, 3);
  std::ranges::sort(samples);
  std::vector<int64_t> all(kOrderedSamples);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(samples, all);
}

TEST(LengthGroupedOrder, SortsTheSamplesThatThePermutationPutsIntoAGroup) {
  const auto data = samples_of_lengths(uneven_lengths(kOrderedSamples));
  const auto order = make_length_grouped_order(*data, kGroup, kSeed);
  const std::vector<int64_t> samples = epoch_of(*order, 1);
  const Permutation permutation(kOrderedSamples, kSeed, 1);
  for (int64_t first = 0; first < kOrderedSamples; first += kGroup) {
    const int64_t last = std::min(kOrderedSamples, first + kGroup);
    std::vector<int64_t> group(samples.begin() + first, samples.begin() + last);
    EXPECT_TRUE(std::ranges::is_sorted(group, std::ranges::greater(),
                                       [&](int64_t sample) { return data->length(sample); }));
    std::vector<int64_t> permuted;
    for (int64_t position = first; position < last; ++position)
      permuted.push_back(permutation[position]);
    std::ranges::sort(group);
    std::ranges::sort(permuted);
    EXPECT_EQ(group, permuted);
  }
}

TEST(LengthGroupedOrder, IsAFunctionOfThePositionHoweverItIsReached) {
  const auto data = samples_of_lengths(uneven_lengths(kOrderedSamples));
  const auto order = make_length_grouped_order(*data, kGroup, kSeed);
  const std::vector<int64_t> whole = epoch_of(*order, 2);
  const auto fresh = make_length_grouped_order(*data, kGroup, kSeed);
  for (const int64_t begin : {95, 17, 60, 18}) {
    const int64_t end = std::min(kOrderedSamples, begin + 27);
    std::vector<int64_t> part;
    fresh->append(2, begin, end, part);
    EXPECT_EQ(part, std::vector<int64_t>(whole.begin() + begin, whole.begin() + end)) << begin;
  }
  EXPECT_NE(whole, epoch_of(*order, 3));
}

}  // namespace
}  // namespace finetune
