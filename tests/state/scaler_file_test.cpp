// SPDX-License-Identifier: MIT
#include "finetune/state/scaler_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

TorchDict state(const TorchValue& scale, const TorchValue& tracker,
                const TorchValue& interval = 2000) {
  TorchDict dict;
  dict.set("scale", scale);
  dict.set("growth_factor", 2.0);
  dict.set("backoff_factor", 0.5);
  dict.set("growth_interval", interval);
  dict.set("_growth_tracker", tracker);
  return dict;
}

std::string refusal(const TorchValue& value) {
  LossScaler scaler;
  const std::string message =
      message_of<Error>([&] { scaler_from_torch(scaler, value, "a/scaler.pt"); });
  EXPECT_GOLDEN(message);
  EXPECT_EQ(scaler.scale(), LossScaler::kInitialScale);
  return message;
}

TEST(ScalerFile, RestoresWhatItWrote) {
  LossScaler scaler;
  scaler.update(true);
  for (int i = 0; i < 5; ++i) scaler.update(false);
  LossScaler restored;
  scaler_from_torch(restored, scaler_to_torch(scaler), "s");
  EXPECT_EQ(restored.scale(), 32768.0);
  EXPECT_EQ(restored.growth_tracker(), 5);
}

TEST(ScalerFile, OfAScalerThatWasOffChangesNothing) {
  LossScaler scaler;
  scaler_from_torch(scaler, TorchDict{}, "s");
  EXPECT_EQ(scaler.scale(), LossScaler::kInitialScale);
}

TEST(ScalerFile, IsRefusedWhereItsNumbersAreNone) {
  for (const double scale : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_GOLDEN(refusal(state(scale, 0)));
  }
  EXPECT_THAT(refusal(state(1.0, -1)), HasSubstr("_growth_tracker"));
  EXPECT_THAT(refusal(state(1.0, 2000)), HasSubstr("_growth_tracker"));
  EXPECT_GOLDEN(refusal(state(1.0, 1.5)));
  EXPECT_GOLDEN(refusal(state("x", 1)));
  EXPECT_THAT(refusal(state(1.0, 1, 100)), HasSubstr("growth_interval is 100"));
  TorchDict incomplete;
  incomplete.set("scale", 2.0);
  EXPECT_THAT(refusal(incomplete), HasSubstr("missing"));
  EXPECT_GOLDEN(refusal(TorchList{}));
}

}  // namespace
}  // namespace finetune
