// SPDX-License-Identifier: MIT
#include "finetune/base/nearest.h"

#include <gtest/gtest.h>

#include "support/golden.h"

namespace finetune {
namespace {

TEST(NearestName, FindsWhatWasMeant) {
  const std::vector<std::string> known = {"train", "evaluate", "predict"};
  EXPECT_EQ(nearest_name("trian", known), "train");
  EXPECT_EQ(nearest_name("evalute", known), "evaluate");
  EXPECT_GOLDEN(did_you_mean("prdict", known));
}

TEST(NearestName, IsEmptyWhereNothingIsNear) {
  EXPECT_EQ(nearest_name("xyz", {"train"}), "");
  EXPECT_EQ(nearest_name(std::string(10'000, 'a'), {"train"}), "");
  EXPECT_EQ(did_you_mean("xyz", {"train"}), "");
}

}  // namespace
}  // namespace finetune
