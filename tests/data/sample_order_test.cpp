// SPDX-License-Identifier: MIT
#include "data/loading/sample_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
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

// Of 103 samples of one token, 9 different ones.
std::shared_ptr<const TokenDataset> samples_with_twins() {
  TokenContent content;
  for (int64_t i = 0; i < kOrderedSamples; ++i) {
    content.ids.push_back(100 + static_cast<int32_t>(i * i % 17));
    content.offsets.push_back(static_cast<int64_t>(content.ids.size()));
  }
  return std::make_shared<const TokenDataset>(std::move(content));
}

TEST(OrderWithoutDuplicates, PutsNoSequenceTwiceIntoAGroupWhileOthersAreLeft) {
  const auto data = samples_with_twins();
  constexpr int64_t kFew = 5;
  const std::vector<uint64_t> hashes = hash_sequences(*data);
  const auto order = make_order_without_duplicates(*data, kFew, kSeed);
  std::vector<int64_t> seen = epoch_of(*order, 1);
  EXPECT_EQ(seen, epoch_of(*make_order_without_duplicates(*data, kFew, kSeed), 1));
  EXPECT_NE(seen, epoch_of(*order, 2));
  EXPECT_EQ(seen, epoch_of(*order, 1));

  std::set<int64_t> left(seen.begin(), seen.end());
  EXPECT_EQ(std::ssize(left), kOrderedSamples);
  int64_t groups_with_twins = 0;
  for (int64_t first = 0; first < kOrderedSamples; first += kFew) {
    const auto end = seen.begin() + std::min(kOrderedSamples, first + kFew);
    std::set<uint64_t> there;
    for (auto sample = seen.begin() + first; sample != end; ++sample) {
      there.insert(hashes[static_cast<size_t>(*sample)]);
    }
    const bool has_twins = std::ssize(there) < end - (seen.begin() + first);
    groups_with_twins += has_twins ? 1 : 0;
    // Then all samples that were left had a sequence of the group.
    for (auto sample = end; has_twins && sample != seen.end(); ++sample) {
      EXPECT_TRUE(there.contains(hashes[static_cast<size_t>(*sample)])) << first;
    }
  }
  EXPECT_LT(groups_with_twins, kOrderedSamples / kFew / 2);
  std::vector<int64_t> plain;
  make_sample_order(kOrderedSamples, SamplingStrategy::kRandom, kSeed)
      ->append(1, 0, kOrderedSamples, plain);
  EXPECT_NE(seen, plain);
}

}  // namespace
}  // namespace finetune
