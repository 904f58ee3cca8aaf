// SPDX-License-Identifier: MIT
#include "finetune/optim/adamw.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace finetune {
namespace {

Tensor parameter(const std::vector<float>& values) {
  return at::tensor(values, at::kFloat).requires_grad_();
}

TEST(AdamW, FollowsThePapersEquations) {
  const Tensor p = parameter({1.0F, -2.0F, 0.5F});
  AdamW optimizer({{"w", p}}, {true},
                  {.beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-6, .weight_decay = 0.1});
  std::vector<double> w = {1.0, -2.0, 0.5};
  std::vector<double> m(3, 0.0);
  std::vector<double> v(3, 0.0);
  for (int t = 1; t <= 5; ++t) {
    const std::vector<float> g = {0.1F * static_cast<float>(t), -0.3F, 2.0F};
    p.mutable_grad() = at::tensor(g, at::kFloat);
    optimizer.step(0.01);
    for (size_t i = 0; i < 3; ++i) {
      w[i] *= 1 - 0.01 * 0.1;
      m[i] = 0.8 * m[i] + 0.2 * g[i];
      v[i] = 0.9 * v[i] + 0.1 * g[i] * g[i];
      w[i] -= 0.01 / (1 - std::pow(0.8, t)) * m[i] /
              (std::sqrt(v[i]) / std::sqrt(1 - std::pow(0.9, t)) + 1e-6);
    }
  }
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(p[i].item<double>(), w[static_cast<size_t>(i)], 1e-6);
  }
}

TEST(AdamW, PutsDecayingParametersFirst) {
  const AdamW optimizer({{"a.bias", parameter({1})},
                         {"b.weight", parameter({1})},
                         {"c.bias", parameter({1})},
                         {"d.weight", parameter({1})}},
                        {false, true, false, true}, {});
  std::vector<std::string> names;
  for (const auto& slot : optimizer.slots()) names.push_back(slot.name);
  EXPECT_EQ(names, (std::vector<std::string>{"b.weight", "d.weight", "a.bias", "c.bias"}));
}

TEST(AdamW, LeavesAParameterWithoutGradientAlone) {
  const Tensor p = parameter({1.0F});
  AdamW optimizer({{"w", p}}, {true}, {.weight_decay = 0.5});
  optimizer.step(0.1);
  EXPECT_EQ(p.item<float>(), 1.0F);
  EXPECT_EQ(optimizer.slots()[0].step.item<float>(), 0.0F);
}

TEST(ClipGradNorm, ScalesToTheMaximumAndReturnsTheNormBefore) {
  const Tensor a = parameter({0, 0});
  const Tensor b = parameter({0});
  a.mutable_grad() = at::tensor(std::vector<float>{3, 0}, at::kFloat);
  b.mutable_grad() = at::tensor(std::vector<float>{4}, at::kFloat);
  EXPECT_NEAR(clip_grad_norm({{"a", a}, {"b", b}}, 1.0), 5.0, 1e-6);
  EXPECT_NEAR(a.grad()[0].item<double>(), 0.6, 1e-6);
  EXPECT_NEAR(b.grad()[0].item<double>(), 0.8, 1e-6);
}

TEST(ClipGradNorm, LeavesSmallGradientsAndAMaximumOfZeroAlone) {
  const Tensor a = parameter({0});
  a.mutable_grad() = at::tensor(std::vector<float>{0.5F}, at::kFloat);
  EXPECT_EQ(clip_grad_norm({{"a", a}}, 1.0), 0.5);
  EXPECT_EQ(a.grad().item<float>(), 0.5F);
  a.mutable_grad() = at::tensor(std::vector<float>{50.0F}, at::kFloat);
  EXPECT_EQ(clip_grad_norm({{"a", a}}, 0.0), 50.0);
  EXPECT_EQ(a.grad().item<float>(), 50.0F);
}

TEST(ClipGradNorm, ReportsANormThatIsNotFinite) {
  const Tensor a = parameter({0});
  a.mutable_grad() = at::full({1}, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan(clip_grad_norm({{"a", a}}, 1.0)));
}

}  // namespace
}  // namespace finetune
