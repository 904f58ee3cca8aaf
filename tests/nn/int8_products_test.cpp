// SPDX-License-Identifier: MIT
#include "finetune/nn/int8_products.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace finetune::nn {
namespace {

TEST(Int8Products, CodesHaveAScaleForEachRow) {
  const Tensor w = at::tensor({1.27F, -0.635F, 0.01F, 0.0F, 0.0F, 0.0F}).view({2, 3});
  EXPECT_TRUE(int8_scales(w).allclose(at::tensor({0.01F, 1.0F}).view({2, 1})));
  const Tensor codes = int8_codes(w);
  EXPECT_EQ(codes.scalar_type(), at::kChar);
  EXPECT_EQ(codes[0][0].item<int>(), 127);
  EXPECT_EQ(codes[0][1].item<int>(), -64);  // half to even
  EXPECT_EQ(codes[1].abs().sum().item<int>(), 0);
}

TEST(Int8Products, ClassifiersOfFewLabelsHaveNone) {
  EXPECT_TRUE(has_int8_codes({16, 8}));
  EXPECT_FALSE(has_int8_codes({15, 768}));
  EXPECT_FALSE(has_int8_codes({768}));
}

// x in 256 steps from its smallest to its largest value, of which 0 is one.
Tensor rounded(const Tensor& x) {
  const double least = std::min(0.0, x.min().item<double>());
  const double most = std::max(0.0, x.max().item<double>());
  const double scale = (most - least) / 255.0;
  const double zero = std::nearbyint(-least / scale);
  return ((x / scale).round() + zero).clamp(0, 255).sub(zero) * scale;
}

TEST(Int8Products, AProductIsThatOfTheRoundedValues) {
  for (const auto& shape : {std::vector<int64_t>{7, 96}, {2, 5, 96}, {1, 1, 96}}) {
    for (const double shift : {0.0, 3.0, -3.0}) {
      const Tensor x = at::randn(shape) + shift;
      const Tensor w = at::randn({40, 96});
      const Tensor b = at::randn({40});
      const Int8Matrix matrix = int8_matrix(w);
      const Tensor expected = at::linear(rounded(x), int8_rounded(w), b);
      const Tensor y = int8_linear(x, matrix, b);
      EXPECT_EQ(y.sizes(), expected.sizes());
      // A value on the border of two codes may get the other one.
      EXPECT_LT((y - expected).abs().max().item<double>(), 0.1);
      EXPECT_LT((y - expected).abs().mean().item<double>(), 5e-3);
      const Tensor without = int8_linear(x, matrix, Tensor());
      EXPECT_TRUE((without + b).allclose(y, 1e-4, 1e-4));
    }
  }
}

TEST(Int8Products, ZerosAndConstantsAreExact) {
  const Int8Matrix matrix = int8_matrix(at::randn({16, 8}));
  EXPECT_EQ(int8_linear(at::zeros({3, 8}), matrix, Tensor()).abs().max().item<float>(), 0.0F);
  const Tensor w = at::ones({16, 8});
  const Tensor y = int8_linear(at::ones({1, 8}) * 2.5, int8_matrix(w), Tensor());
  EXPECT_TRUE(y.allclose(at::ones({1, 16}) * 20.0, 1e-5));
}

// A wrong model's answers are refused, which rounding must not hide.
TEST(Int8Products, OfNaNAreNaN) {
  const Int8Matrix matrix = int8_matrix(at::ones({32, 64}));
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    const Tensor x = at::ones({2, 64});
    x[1][5] = bad;
    EXPECT_FALSE(int8_linear(x, matrix, {}).isfinite().any().item<bool>());
  }
}

}  // namespace
}  // namespace finetune::nn
