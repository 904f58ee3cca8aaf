// SPDX-License-Identifier: MIT
#include "finetune/kernels/token_product.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "finetune/kernels/precision.h"
#include "finetune/params/store.h"
#include "finetune/tensor/tensor.h"
#include "kernels/cpu/operations.h"

namespace finetune::kernels {
namespace {

const std::vector<int64_t> kTokens = {512, 64, 640, 1023, 40};

double largest_error(const Tensor& result, const Tensor& expected) {
  return (result.to(at::kDouble) - expected).abs().max().item<double>() /
         expected.abs().max().item<double>();
}

// [rows, columns] that are a part of longer rows.
Tensor draw_part(int64_t rows, int64_t columns) {
  return at::randn({rows, columns + 32}).narrow(1, 16, columns);
}

TEST(TokenProduct, MultipliesRowsOfTokens) {
  at::manual_seed(5);
  for (const int64_t tokens : kTokens) {
    for (const bool is_strided : {false, true}) {
      const Tensor x = is_strided ? draw_part(tokens, 192) : at::randn({tokens, 192});
      const Tensor weight = at::randn({96, 192});
      const Tensor expected = x.to(at::kDouble).mm(weight.t().to(at::kDouble));
      const float nan = std::numeric_limits<float>::quiet_NaN();
      const Tensor y = (is_strided ? draw_part(tokens, 96) : at::empty({tokens, 96})).fill_(nan);
      cpu::token_product(y, x, weight.t(), 0.0);
      EXPECT_LE(largest_error(y, expected), 1e-6) << tokens << " tokens";
      cpu::token_product(y, x, weight.t(), 1.0);
      EXPECT_LE(largest_error(y, 2 * expected), 1e-6) << tokens << " tokens, added";
    }
  }
}

TEST(TokenProduct, SumsOverTokens) {
  at::manual_seed(5);
  for (const int64_t tokens : kTokens) {
    const Tensor dy = at::randn({tokens, 100});
    const Tensor x = at::randn({tokens, 192});
    const Tensor expected = dy.t().to(at::kDouble).mm(x.to(at::kDouble));
    const Tensor dw = at::full({100, 192}, std::numeric_limits<float>::quiet_NaN());
    cpu::token_product(dw, dy.t(), x, 0.0);
    EXPECT_LE(largest_error(dw, expected), 1e-6) << tokens << " tokens";
    cpu::token_product(dw, dy.t(), x, 1.0);
    EXPECT_LE(largest_error(dw, 2 * expected), 1e-6) << tokens << " tokens, added";
  }
}

// A resumed run has its tensors in other memory.
TEST(TokenProduct, GivesTheSameBitsInOtherMemory) {
  at::manual_seed(5);
  const Tensor x = at::randn({701, 192});
  const Tensor weight = at::randn({192, 96});
  const Tensor once = at::empty({701, 96});
  cpu::token_product(once, x, weight, 0.0);
  for (int64_t offset = 1; offset < 20; offset += 3) {
    const Tensor moved = at::empty({x.numel() + 64}).narrow(0, offset, x.numel()).view(x.sizes());
    moved.copy_(x);
    const Tensor again = at::empty({once.numel() + 64}).narrow(0, offset, once.numel());
    cpu::token_product(again.view(once.sizes()), moved, weight, 0.0);
    EXPECT_TRUE(at::equal(again.view(once.sizes()), once)) << offset;
  }
}

TEST(TokenProduct, GivesAValueTheSameBitsInEveryProductOfEveryThread) {
  at::manual_seed(5);
  const Tensor x = at::randn({301, 900});
  const Tensor weight = at::randn({200, 900});
  const Tensor turned = x.t().contiguous().t();
  const Tensor whole = at::empty({301, 200});
  cpu::token_product(whole, x, weight.t(), 0.0);
  const int threads = at::get_num_threads();
  for (const int count : {1, 2, 7, 16, 40}) {
    at::set_num_threads(count);
    const Tensor part = at::empty({45, 33});
    cpu::token_product(part, x.narrow(0, 256, 45), weight.narrow(0, 130, 33).t(), 0.0);
    EXPECT_TRUE(at::equal(part, whole.narrow(0, 256, 45).narrow(1, 130, 33))) << count;
    const Tensor again = at::empty({301, 200});
    cpu::token_product(again, x, weight.t(), 0.0);
    EXPECT_TRUE(at::equal(again, whole)) << count;
    cpu::token_product(again, turned, weight.t().contiguous(), 0.0);
    EXPECT_TRUE(at::equal(again, whole)) << count << " threads, factors in another order";
  }
  at::set_num_threads(threads);
}

// The products of a linear layer, of a size for which some processors use the token product.
TEST(TokenProduct, ServesLinearLayers) {
  at::manual_seed(5);
  const Tensor x = at::randn({300, 256});
  const Tensor weight = at::randn({192, 256});
  const Tensor bias = at::randn({192});
  const Tensor product = x.to(at::kDouble).mm(weight.t().to(at::kDouble));
  EXPECT_LE(largest_error(linear_in(Precision::kFloat32, x, weight, Tensor()), product), 1e-6);
  EXPECT_LE(largest_error(linear_in(Precision::kFloat32, x, weight, bias), product + bias), 1e-6);
  const Tensor dy = at::randn({300, 192});
  const Tensor of_input = dy.to(at::kDouble).mm(weight.to(at::kDouble));
  const Tensor dx = at::empty({300, 256});
  product_into(Precision::kFloat32, dx, dy, weight, 0.0);
  EXPECT_LE(largest_error(dx, of_input), 1e-6);
  product_into(Precision::kFloat32, dx, dy, weight, 1.0);
  EXPECT_LE(largest_error(dx, 2 * of_input), 1e-6);
  ParameterStore store({{"weight", weight}}, WeightFormat::kFloat32, GradientFormat::kFloat32);
  const Tensor of_weight = dy.t().to(at::kDouble).mm(x.to(at::kDouble));
  store.gradients().add_product(store.weight("weight"), dy, x);
  EXPECT_LE(largest_error(store.parameters()[0].gradient, of_weight), 1e-6);
  store.gradients().add_product(store.weight("weight"), dy, x);
  EXPECT_LE(largest_error(store.parameters()[0].gradient, 2 * of_weight), 1e-6);
}

TEST(TokenProduct, LeavesSmallProductsAndOtherTypesToAten) {
  at::manual_seed(5);
  const Tensor small = at::randn({32, 32});
  EXPECT_FALSE(has_token_product(small, small));
  const Tensor row = at::randn({1, 4096});
  EXPECT_FALSE(has_token_product(row, at::randn({4096, 4096})));
  const Tensor wide = at::randn({512, 512}, at::kDouble);
  EXPECT_FALSE(has_token_product(wide, wide));
}

// CPUs with instructions for bfloat16 multiply it as it is, others in float32.
TEST(Products, OfSixteenBitsAreAddedToFloat32) {
  const Tensor a = at::randn({5, 7});
  const Tensor b = at::randn({7, 6});
  const Tensor expected = a.to(at::kBFloat16).to(at::kFloat).mm(b.to(at::kBFloat16).to(at::kFloat));
  const Tensor start = at::randn({5, 6});
  const Tensor sum = start.clone();
  product_into(Precision::kBFloat16, sum, a, b, 1.0);
  // The product may be rounded before it is added.
  EXPECT_TRUE(at::allclose(sum, start + expected, 2e-2, 2e-2));
  const Tensor unset = at::full({5, 6}, std::numeric_limits<float>::quiet_NaN());
  product_into(Precision::kBFloat16, unset, a, b, 0.0);
  EXPECT_TRUE(at::allclose(unset, expected, 2e-2, 2e-2));
}

}  // namespace
}  // namespace finetune::kernels
