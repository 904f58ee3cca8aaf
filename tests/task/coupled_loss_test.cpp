// SPDX-License-Identifier: MIT
#include "task/loss/coupled_loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

namespace finetune {
namespace {

// Two rows a sample; the loss of a sample depends on all rows.
Tensor losses_of(const Tensor& rows, int64_t first, int64_t count) {
  const Tensor samples = rows.view({-1, 2, rows.size(1)});
  const Tensor own = samples.narrow(0, first, count);
  return own.select(1, 0).matmul(samples.select(1, 1).t()).logsumexp(1) + own.select(1, 1).sum(1);
}

TEST(CoupledLoss, HasTheGradientOfTheWholeSum) {
  const Tensor all = at::arange(24, at::kFloat).view({8, 3}) / 24;
  const Tensor leaf = all.clone().requires_grad_();
  losses_of(leaf, 0, 4).sum().backward();

  for (const int64_t at_once : {1, 3, 4}) {
    CoupledLoss loss;
    loss.couple(all, 4, at_once, losses_of);
    double sum = 0.0;
    for (const int64_t first : {0, 2}) {
      const Tensor rows = all.narrow(0, first, first == 0 ? 2 : 6).clone().requires_grad_();
      const Tensor part = loss.sum_of(rows, first);
      part.backward();
      // Sums in float32 in another order.
      EXPECT_TRUE(rows.grad().allclose(leaf.grad().narrow(0, first, rows.size(0)), 1e-6, 1e-6));
      sum += part.item<double>();
    }
    EXPECT_NEAR(sum, losses_of(all, 0, 4).sum().item<double>(), 1e-5) << at_once;
  }
}

}  // namespace
}  // namespace finetune
