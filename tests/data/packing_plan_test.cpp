// SPDX-License-Identifier: MIT
#include "finetune/data/packing_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "data/token_samples.h"

namespace finetune {
namespace {

using testing::samples_of_lengths;
using testing::uneven_lengths;

constexpr int64_t kPackedSamples = 1000;  // four groups, the last one smaller

std::vector<std::vector<int64_t>> rows_of(const PackingPlan& plan) {
  std::vector<std::vector<int64_t>> rows(static_cast<size_t>(plan.rows()));
  for (size_t row = 0; row < rows.size(); ++row) {
    plan.append(static_cast<int64_t>(row), rows[row]);
  }
  return rows;
}

TEST(PackingPlan, PutsEverySampleIntoOneRowThatHasRoomForIt) {
  const auto data = samples_of_lengths(uneven_lengths(kPackedSamples));
  for (const bool keeps_order : {false, true}) {
    std::vector<int64_t> seen;
    for (const auto& row :
         rows_of(PackingPlan(*data, {.capacity = 128, .keeps_order = keeps_order}))) {
      int64_t tokens = 0;
      for (const int64_t sample : row) tokens += data->length(sample);
      EXPECT_GE(tokens, 1);
      EXPECT_LE(tokens, 128);
      seen.insert(seen.end(), row.begin(), row.end());
    }
    std::ranges::sort(seen);
    ASSERT_EQ(seen.size(), static_cast<size_t>(kPackedSamples));
    for (int64_t i = 0; i < kPackedSamples; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
  }
}

TEST(PackingPlan, LeavesLittleRoom) {
  const std::vector<int64_t> lengths = uneven_lengths(kPackedSamples);
  int64_t tokens = 0;
  for (const int64_t length : lengths) tokens += length;
  const auto data = samples_of_lengths(lengths);
  const PackingPlan plan(*data, {.capacity = 128});
  EXPECT_GT(static_cast<double>(tokens), 0.97 * 128 * static_cast<double>(plan.rows()));
}

TEST(PackingPlan, KeepsTheOrderWhereAskedTo) {
  const auto data = samples_of_lengths(uneven_lengths(kPackedSamples));
  std::vector<int64_t> all;
  for (const auto& row : rows_of(PackingPlan(*data, {.capacity = 128, .keeps_order = true}))) {
    all.insert(all.end(), row.begin(), row.end());
  }
  EXPECT_TRUE(std::ranges::is_sorted(all));
}

TEST(PackingPlan, TakesTheSamplesOfARowFromAllOverTheData) {
  const auto data = samples_of_lengths(std::vector<int64_t>(kPackedSamples, 32));
  for (const auto& row : rows_of(PackingPlan(*data, {.capacity = 128}))) {
    ASSERT_GE(row.size(), 2U);
    for (size_t i = 1; i < row.size(); ++i) EXPECT_EQ(row[i] - row[i - 1], 4);
  }
}

TEST(PackingPlan, GivesASampleAboveTheCapacityARowOfItsOwn) {
  const auto data = samples_of_lengths({3, 40, 5});
  const auto rows = rows_of(PackingPlan(*data, {.capacity = 16}));
  EXPECT_EQ(rows, (std::vector<std::vector<int64_t>>{{1}, {0, 2}}));
}

}  // namespace
}  // namespace finetune
