// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/where.h>

#include <cmath>

#include "task/preference/preference.h"

namespace finetune {
namespace {

// log(1 - e^x), x < 0: near 0 and far from it by another function, so that neither loses digits.
Tensor log1mexp(const Tensor& x) {
  return at::where(x < -std::log(2.0), at::log1p(-at::exp(x)), at::log(-at::expm1(x)));
}

// Of the chosen row minus that of the rejected one.
Tensor difference(const Tensor& pairs) { return pairs.select(1, 0) - pairs.select(1, 1); }

}  // namespace

Tensor dpo_rewards(const PairScores& scores, const Tensor& reference, const DpoOptions& options) {
  if (options.loss == DpoLoss::kSimpo) return options.beta * (scores.log_probs / scores.tokens);
  return options.beta * (scores.log_probs - reference);
}

Tensor dpo_losses(const PairScores& scores, const Tensor& reference, const DpoOptions& options) {
  if (options.loss == DpoLoss::kSimpo) {
    const Tensor rewards = dpo_rewards(scores, reference, options);
    return -at::log_sigmoid(difference(rewards) - options.simpo_gamma);
  }
  const Tensor ratios = scores.log_probs - reference;
  const Tensor margin = options.beta * difference(ratios);
  switch (options.loss) {
    case DpoLoss::kHinge:
      return at::relu(1.0 - margin);
    case DpoLoss::kIpo:
      return (difference(ratios / scores.tokens) - 1.0 / (2.0 * options.beta)).square();
    case DpoLoss::kSigmoidNorm:
      return -at::log_sigmoid(options.beta * difference(ratios / scores.tokens));
    case DpoLoss::kRobust: {
      const double wrong = options.label_smoothing;
      return ((wrong - 1.0) * at::log_sigmoid(margin) + wrong * at::log_sigmoid(-margin)) /
             (1.0 - 2.0 * wrong);
    }
    case DpoLoss::kSimpo:
    case DpoLoss::kSigmoid:
      break;
  }
  return -at::log_sigmoid(margin);
}

Tensor log_odds(const PairScores& scores) {
  const Tensor means = scores.log_probs / scores.tokens;
  return difference(means) - difference(log1mexp(means));
}

}  // namespace finetune
