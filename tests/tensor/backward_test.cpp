// SPDX-License-Identifier: MIT
#include "finetune/tensor/backward.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

namespace finetune {
namespace {

Tensor leaf() { return at::ones({3}).set_requires_grad(true); }

// Returns y = 2 x with a backward pass that claims a factor of 5, unlike autograd's.
Tensor attached(const Tensor& x) {
  return attach_backward((x * 2).detach(), {x}, [](const Tensor& gradient) -> std::vector<Tensor> {
    return {gradient * 5};
  });
}

TEST(AttachBackward, PassesGradientsThroughTheHandWrittenFunction) {
  const Tensor x = leaf();
  (attached(x * 3) * 7).sum().backward();
  EXPECT_TRUE(x.grad().equal(at::full({3}, 105.0)));
}

TEST(AttachBackward, LeavesTheOutputAloneWithoutGradMode) {
  const Tensor x = leaf();
  const c10::NoGradGuard no_grad;
  EXPECT_FALSE(attached(x).requires_grad());
}

TEST(AttachBackward, LeavesTheOutputAloneWhereNoInputNeedsAGradient) {
  EXPECT_FALSE(attached(at::ones({3})).requires_grad());
}

TEST(AttachBackward, FreesWhatTheFunctionHolds) {
  const Tensor x = leaf();
  const auto held = std::make_shared<int>(1);
  const Tensor y =
      attach_backward(at::ones({3}), {x},
                      [held](const Tensor& gradient) -> std::vector<Tensor> { return {gradient}; });
  EXPECT_EQ(held.use_count(), 2);
  y.sum().backward();
  EXPECT_EQ(held.use_count(), 1);
}

TEST(AttachBackward, RefusesASecondBackwardPass) {
  const Tensor x = leaf();
  const Tensor sum = attached(x).sum();
  sum.backward({}, /*retain_graph=*/true);
  EXPECT_THROW(sum.backward(), std::logic_error);
}

TEST(AttachBackward, TakesInputsWithoutAGradient) {
  const Tensor x = leaf();
  const Tensor y = attach_backward(at::ones({3}), {x, at::ones({2})},
                                   [](const Tensor& gradient) -> std::vector<Tensor> {
                                     return {gradient, Tensor()};
                                   });
  y.sum().backward();
  EXPECT_TRUE(x.grad().equal(at::ones({3})));
}

}  // namespace
}  // namespace finetune
