// SPDX-License-Identifier: MIT
#include "finetune/data/mixed_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/data/token_dataset.h"
#include "support/golden.h"

namespace finetune {
namespace {

using testing::message_of;

// Makes `size` samples of one token each: first, first + 1, ...
std::shared_ptr<const Dataset> numbers(int32_t first, int32_t size) {
  TokenContent content;
  for (int32_t i = 0; i < size; ++i) {
    content.ids.push_back(first + i);
    content.offsets.push_back(i + 1);
  }
  return std::make_shared<const TokenDataset>(std::move(content));
}

std::map<int32_t, int64_t> times_of(const Dataset& data) {
  std::map<int32_t, int64_t> times;
  for (int64_t i = 0; i < data.size(); ++i) ++times[data.get(i).input_ids[0]];
  return times;
}

TEST(MixedDataset, GivesEachPartItsShareAndEverySampleAPosition) {
  const MixedDataset mixed({{numbers(0, 10), 1}, {numbers(100, 10), 2.5}, {numbers(200, 2), 0.5}},
                           "train_file");
  EXPECT_EQ(mixed.share(0), 10);
  EXPECT_EQ(mixed.share(1), 25);
  EXPECT_EQ(mixed.share(2), 5);
  ASSERT_EQ(mixed.size(), 40);
  const auto times = times_of(mixed);
  ASSERT_EQ(times.size(), 22U);
  for (int32_t i = 0; i < 10; ++i) EXPECT_EQ(times.at(i), 1);
  int64_t third = 0;
  for (int32_t i = 100; i < 110; ++i) {
    EXPECT_GE(times.at(i), 2);
    EXPECT_LE(times.at(i), 3);
    third += times.at(i) == 3 ? i % 2 == 0 : 0;
  }
  EXPECT_EQ(third, 5) << "the incomplete pass is spread evenly";
  EXPECT_EQ(times.at(200) + times.at(201), 5);
}

TEST(MixedDataset, SeesEverySampleWhateverTheWeights) {
  for (const double weight : {1e-3, 0.1, 1.0 / 3, 0.77, 1.0, 3.0, 1000.0}) {
    const MixedDataset mixed({{numbers(0, 7), weight}, {numbers(100, 13), 1}}, "train_file");
    EXPECT_EQ(times_of(mixed).size(), 20U) << weight;
    EXPECT_NEAR(static_cast<double>(mixed.share(0)) / static_cast<double>(mixed.share(1)), weight,
                weight / 7)
        << weight;
  }
}

TEST(MixedDataset, DoesNotDependOnTheScaleOfWeights) {
  const MixedDataset one({{numbers(0, 7), 1}, {numbers(100, 13), 3}}, "train_file");
  const MixedDataset ten({{numbers(0, 7), 10}, {numbers(100, 13), 30}}, "train_file");
  EXPECT_EQ(one.fingerprint(), ten.fingerprint());
  const MixedDataset other({{numbers(0, 7), 1}, {numbers(100, 13), 4}}, "train_file");
  EXPECT_NE(one.fingerprint(), other.fingerprint());
}

TEST(MixedDataset, RefusesAnEpochWithoutEnd) {
  EXPECT_GOLDEN(message_of<Error>([] {
    const MixedDataset mixed({{numbers(0, 7), 1e-30}, {numbers(100, 13), 1}}, "train_file");
  }));
}

}  // namespace
}  // namespace finetune
