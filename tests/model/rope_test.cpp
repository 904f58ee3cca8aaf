// SPDX-License-Identifier: MIT
#include "model/rope.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace finetune {
namespace {

// transformers' _compute_longrope_parameters: long factors from one token more than the original
// length on.
TEST(Rope, LongRopeTakesTheLongFactorsBehindTheOriginalLengthOnly) {
  RopeParameters rope;
  rope.rope_type = "longrope";
  rope.short_factor = {1.0, 1.0};
  rope.long_factor = {2.0, 2.0};
  rope.original_max_position_embeddings = 8;
  const auto angle_of_position_1 = [&](int64_t length) {
    const nn::Rotation rotation =
        rope_rotation(rope, 4, 16, at::arange(length, at::kLong), {.tokens = {length}});
    return std::atan2(rotation.sin[1][0].item<double>(), rotation.cos[1][0].item<double>());
  };
  EXPECT_NEAR(angle_of_position_1(7), 1.0, 1e-6);
  EXPECT_NEAR(angle_of_position_1(8), 1.0, 1e-6);
  EXPECT_NEAR(angle_of_position_1(9), 0.5, 1e-6);
}

}  // namespace
}  // namespace finetune
