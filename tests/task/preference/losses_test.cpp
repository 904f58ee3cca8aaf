// SPDX-License-Identifier: MIT
// The losses of preferences. tests/parity/test_preference.py compares them with TRL's.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>

#include "task/preference/preference.h"

namespace finetune {
namespace {

PairScores scores_of(double chosen, double rejected, double tokens = 4.0) {
  return {.log_probs = at::tensor({chosen, rejected}, at::kFloat).view({1, 2}),
          .tokens = at::full({1, 2}, tokens, at::kFloat)};
}

double loss_of(const PairScores& scores, const DpoOptions& options) {
  const Tensor reference = at::tensor({-3.0, -5.0}, at::kFloat).view({1, 2});
  return dpo_losses(scores, reference, options).item<double>();
}

TEST(DpoLosses, OfAModelThatIsItsReference) {
  const PairScores same = scores_of(-3.0, -5.0);
  const double half = std::log(2.0);
  EXPECT_NEAR(loss_of(same, {}), half, 1e-6);
  EXPECT_NEAR(loss_of(same, {.loss = DpoLoss::kSigmoidNorm}), half, 1e-6);
  EXPECT_NEAR(loss_of(same, {.loss = DpoLoss::kHinge}), 1.0, 1e-6);
  EXPECT_NEAR(loss_of(same, {.loss = DpoLoss::kIpo, .beta = 0.5}), 1.0, 1e-6);
  EXPECT_NEAR(loss_of(same, {.loss = DpoLoss::kRobust, .label_smoothing = 0.2}), half, 1e-6);
}

TEST(DpoLosses, CompareLogRatiosWithTheReference) {
  // Log ratios 2 and -4: a margin of 6, of 1.5 a token.
  const PairScores better = scores_of(-1.0, -9.0);
  const auto softplus = [](double x) { return std::log1p(std::exp(x)); };
  EXPECT_NEAR(loss_of(better, {}), softplus(-0.6), 1e-6);
  EXPECT_NEAR(loss_of(better, {.loss = DpoLoss::kSigmoidNorm, .beta = 2.0}), softplus(-3.0), 1e-6);
  EXPECT_NEAR(loss_of(better, {.loss = DpoLoss::kHinge, .beta = 0.1}), 0.4, 1e-6);
  EXPECT_NEAR(loss_of(better, {.loss = DpoLoss::kHinge, .beta = 1.0}), 0.0, 1e-6);
  EXPECT_NEAR(loss_of(better, {.loss = DpoLoss::kIpo, .beta = 0.5}), 0.25, 1e-6);
  EXPECT_NEAR(loss_of(better, {.loss = DpoLoss::kRobust, .label_smoothing = 0.25}),
              (0.75 * softplus(-0.6) - 0.25 * softplus(0.6)) / 0.5, 1e-6);
}

TEST(DpoLosses, OfSimpoHaveNoReference) {
  // Mean log probabilities -0.25 and -2.25.
  const DpoOptions options = {.loss = DpoLoss::kSimpo, .beta = 2.0, .simpo_gamma = 0.5};
  const PairScores scores = scores_of(-1.0, -9.0);
  EXPECT_NEAR(dpo_losses(scores, Tensor(), options).item<double>(), std::log1p(std::exp(-3.5)),
              1e-6);
  const Tensor rewards = dpo_rewards(scores, Tensor(), options);
  EXPECT_NEAR(rewards[0][0].item<double>(), -0.5, 1e-6);
  EXPECT_NEAR(rewards[0][1].item<double>(), -4.5, 1e-6);
}

TEST(LogOdds, KeepTheirDigitsNearCertainty) {
  // The mean log probability of a token of -1e-6 is a probability of nearly 1.
  const double odds = log_odds(scores_of(-4e-6, -4.0)).item<double>();
  const double chosen = -1e-6 - std::log(-std::expm1(-1e-6));
  const double rejected = -1.0 - std::log1p(-std::exp(-1.0));
  EXPECT_NEAR(odds, chosen - rejected, 1e-4);
  EXPECT_NEAR(log_odds(scores_of(-400.0, -400.0)).item<double>(), 0.0, 1e-6);
}

}  // namespace
}  // namespace finetune
