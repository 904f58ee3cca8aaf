// SPDX-License-Identifier: MIT
#include "finetune/params/weight.h"

#include <gtest/gtest.h>

namespace finetune {
namespace {

TEST(Weight, IsTheSameInEveryCopyAndNoOther) {
  const Weight weight(3, "layer.weight", {4, 5}, ParameterRole::kOther);
  const Weight copy = weight;
  EXPECT_EQ(copy, weight);
  EXPECT_NE(Weight(3, "layer.weight", {4, 5}, ParameterRole::kOther), weight);
  EXPECT_EQ(copy.id(), 3U);
  EXPECT_EQ(copy.name(), "layer.weight");
}

TEST(Weight, HasItsLogicalShape) {
  const Weight weight(0, "layer.weight", {4, 5}, ParameterRole::kEmbedding);
  EXPECT_EQ(weight.dim(), 2);
  EXPECT_EQ(weight.size(0), 4);
  EXPECT_EQ(weight.size(-1), 5);
  EXPECT_EQ(weight.numel(), 20);
  EXPECT_EQ(weight.role(), ParameterRole::kEmbedding);
  EXPECT_EQ(Weight(0, "scalar", {}, ParameterRole::kOther).numel(), 1);
}

TEST(Weight, IsNoneByDefault) { EXPECT_FALSE(Weight().defined()); }

}  // namespace
}  // namespace finetune
