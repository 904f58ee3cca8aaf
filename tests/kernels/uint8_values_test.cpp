// SPDX-License-Identifier: MIT
#include "finetune/kernels/uint8_values.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace finetune::kernels {
namespace {

// By operators of ATen.
Tensor codes_of(const Tensor& x, const Uint8Values& values) {
  return (x / values.scale).round().add(values.zero).clamp(0, 255).to(at::kByte);
}

TEST(Uint8Values, RoundAsAtensOperators) {
  at::manual_seed(3);
  for (const int64_t count : {1, 15, 16, 17, 1000, 70000}) {
    for (const double mean : {0.0, 2.0, -9.0}) {
      const Tensor x = at::randn({count}) * 3 + mean;
      const Uint8Values values = uint8_values(x);
      EXPECT_TRUE(values.codes.equal(codes_of(x, values))) << count;
      const Tensor again = (values.codes.to(at::kFloat) - values.zero) * values.scale;
      EXPECT_LE((again - x).abs().max().item<double>(), 0.51 * values.scale) << count;
    }
  }
}

TEST(Uint8Values, RoundTiesToEvenAndHaveZero) {
  const Tensor x = at::tensor({0.0F, 0.5F, 1.5F, 2.5F, 254.5F, 255.0F});
  const Uint8Values values = uint8_values(x);
  EXPECT_EQ(values.scale, 1.0);
  EXPECT_TRUE(values.codes.equal(at::tensor({0, 0, 2, 2, 254, 255}, at::kByte)));
  EXPECT_EQ(uint8_values(at::tensor({3.0F, 5.0F})).zero, 0);
  EXPECT_EQ(uint8_values(at::tensor({-3.0F, -5.0F})).zero, 255);
  const Uint8Values none = uint8_values(at::zeros({4}));
  EXPECT_EQ(none.scale, 1.0);
  EXPECT_TRUE(none.codes.equal(at::zeros({4}, at::kByte)));
}

TEST(Uint8Values, OfNoNumbersHaveNoScale) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    EXPECT_TRUE(std::isnan(uint8_values(at::tensor({1.0F, bad, -2.0F})).scale));
  }
}

}  // namespace
}  // namespace finetune::kernels
