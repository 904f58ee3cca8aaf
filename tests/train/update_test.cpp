// SPDX-License-Identifier: MIT
#include "train/loop/update.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace finetune {
namespace {

using ::testing::ElementsAre;

TEST(Targets, DivideByThoseOfAllRanksOrAverageTheRanksMeans) {
  const Targets targets{.own = {4, 0}, .all = {10, 0}, .ranks = {2, 0}};
  EXPECT_THAT(targets.scales(1.0, /*over_all_ranks=*/true), ElementsAre(0.1, 1.0));
  EXPECT_THAT(targets.scales(16.0, /*over_all_ranks=*/false), ElementsAre(2.0, 16.0));
}

TEST(Update, IsComputedInGroups) {
  const std::vector<Batch> batches(5);
  const Update update{.batches = batches};
  EXPECT_EQ(update.group(0, 2).size(), 2U);
  EXPECT_EQ(update.group(4, 2).size(), 1U);
  EXPECT_EQ(update.group(4, 2).data(), &batches[4]);
}

}  // namespace
}  // namespace finetune
