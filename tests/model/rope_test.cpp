// SPDX-License-Identifier: MIT
#include "model/rope.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

namespace finetune {
namespace {

RopeParameters longrope() {
  RopeParameters rope;
  rope.rope_type = "longrope";
  rope.short_factor = {1.0, 1.0};
  rope.long_factor = {2.0, 2.0};
  rope.original_max_position_embeddings = 8;
  return rope;
}

double angle_of(const nn::Rotation& rotation, int64_t token) {
  return std::atan2(rotation.sin[token][0].item<double>(), rotation.cos[token][0].item<double>());
}

// transformers' _compute_longrope_parameters: long factors from one token more than the original
// length on.
TEST(Rope, LongRopeTakesTheLongFactorsBehindTheOriginalLengthOnly) {
  const RopeParameters rope = longrope();
  const auto angle_of_position_1 = [&](int64_t length) {
    const nn::Rotation rotation =
        rope_rotation(rope, 4, 16, at::arange(length, at::kLong), {.tokens = {length}});
    return angle_of(rotation, 1);
  };
  EXPECT_NEAR(angle_of_position_1(7), 1.0, 1e-6);
  EXPECT_NEAR(angle_of_position_1(8), 1.0, 1e-6);
  EXPECT_NEAR(angle_of_position_1(9), 0.5, 1e-6);
}

// Of a row whose end is left out, and one that is whole.
TEST(Rope, LongRopeGoesByTheLengthOfTheWholeRow) {
  const RopeParameters rope = longrope();
  const Tensor positions = at::arange(6, at::kLong).remainder(3);
  const auto angles = [&](const SequenceLengths& lengths) {
    const nn::Rotation rotation = rope_rotation(rope, 4, 16, positions, lengths);
    return std::pair(angle_of(rotation, 1), angle_of(rotation, 4));
  };
  const auto [cut, whole] = angles({.tokens = {3, 3}, .whole = {9, 3}});
  EXPECT_NEAR(cut, 0.5, 1e-6);
  EXPECT_NEAR(whole, 1.0, 1e-6);
  EXPECT_EQ(angles({.tokens = {3, 3}}), std::pair(whole, whole));
}

}  // namespace
}  // namespace finetune
