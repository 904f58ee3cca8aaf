// SPDX-License-Identifier: MIT
#include "finetune/optim/loss_scaler.h"

#include <gtest/gtest.h>

namespace finetune {
namespace {

TEST(LossScaler, BeginsAsTorchDoes) {
  const LossScaler scaler;
  EXPECT_EQ(scaler.scale(), 65536.0);
  EXPECT_EQ(scaler.growth_tracker(), 0);
}

TEST(LossScaler, HalvesOnOverflowAndCountsAnew) {
  LossScaler scaler;
  for (int i = 0; i < 10; ++i) scaler.update(false);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 32768.0);
  EXPECT_EQ(scaler.growth_tracker(), 0);
}

TEST(LossScaler, DoublesAfterTwoThousandUpdatesWithoutOverflow) {
  LossScaler scaler;
  for (int i = 0; i < 1999; ++i) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 65536.0);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 131072.0);
  EXPECT_EQ(scaler.growth_tracker(), 0);
}

TEST(LossScaler, NeverBecomesInfinite) {
  LossScaler scaler;
  scaler.restore(0x1.0p127, LossScaler::kGrowthInterval - 1);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 0x1.0p127);
  EXPECT_EQ(scaler.growth_tracker(), 0);
}

TEST(LossScaler, GoesOnFromARestoredState) {
  LossScaler whole;
  LossScaler restored;
  for (int i = 0; i < 1500; ++i) whole.update(i == 700);
  restored.restore(whole.scale(), whole.growth_tracker());
  for (int i = 0; i < 3000; ++i) {
    whole.update(i == 2500);
    restored.update(i == 2500);
  }
  EXPECT_EQ(whole.scale(), restored.scale());
  EXPECT_EQ(whole.growth_tracker(), restored.growth_tracker());
}

}  // namespace
}  // namespace finetune
