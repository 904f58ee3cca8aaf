// SPDX-License-Identifier: MIT
#include "train/save/save_clock.h"

#include <gtest/gtest.h>

#include <cmath>

namespace finetune {
namespace {

TEST(SaveClock, SavesEveryMinuteWhereThatIsCheap) {
  SaveClock clock({}, 100);
  EXPECT_FALSE(clock.is_due(159));
  EXPECT_TRUE(clock.is_due(160));
  clock.began(160);
  clock.cost(0.01, 0.2);
  EXPECT_FALSE(clock.is_due(219));
  EXPECT_TRUE(clock.is_due(220));
}

TEST(SaveClock, NeverSpendsMoreThanAHundredthOfTheTime) {
  SaveClock clock({}, 0);
  clock.cost(3.0, 4.0);
  EXPECT_DOUBLE_EQ(clock.interval_seconds(), 300);
  clock.cost(1.0, 4.0);
  EXPECT_DOUBLE_EQ(clock.interval_seconds(), 200);
}

TEST(SaveClock, LeavesTheDiskAloneHalfOfTheTime) {
  SaveClock clock({}, 0);
  clock.cost(0.1, 100);
  EXPECT_DOUBLE_EQ(clock.interval_seconds(), 200);
}

TEST(SaveClock, GuessesTheFirstSaveFromItsSize) {
  const SaveClock clock({.checkpoint_bytes = 10'000'000'000}, 0);
  EXPECT_DOUBLE_EQ(clock.interval_seconds(), 350);
}

TEST(SaveClock, TakesTheMinutesThatWereAskedFor) {
  SaveClock clock({.minutes = 0.5}, 0);
  clock.cost(3.0, 4.0);
  EXPECT_DOUBLE_EQ(clock.interval_seconds(), 30);
}

TEST(SaveClock, NeverIsDueWithZeroMinutes) {
  const SaveClock clock({.minutes = 0}, 0);
  EXPECT_FALSE(clock.is_due(1e12));
}

}  // namespace
}  // namespace finetune
