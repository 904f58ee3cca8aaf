// SPDX-License-Identifier: MIT
#include "finetune/kernels/delta_rule.h"

#include "finetune/base/error.h"
#include "kernels/interface/kernels.h"

namespace finetune::kernels {
namespace {

void check(const DeltaRule& rule) {
  FT_CHECK(rule.mixed.is_contiguous() && rule.a.is_contiguous() && rule.b.is_contiguous() &&
               rule.a.sizes() == rule.b.sizes() &&
               rule.a.scalar_type() == rule.mixed.scalar_type() &&
               rule.b.scalar_type() == rule.mixed.scalar_type() &&
               rule.a_log.numel() == rule.heads() && rule.dt_bias.numel() == rule.heads() &&
               rule.mixed.numel() / rule.mixed.size(-1) == rule.rows() &&
               rule.heads() % rule.key_heads == 0 &&
               rule.mixed.size(-1) ==
                   2 * rule.key_heads * rule.key_size + rule.heads() * rule.value_size(),
           "rows of queries, keys and values with two gates for each head, contiguous");
}

void check(const Tensor& x, const ShortConvolution& convolution) {
  FT_CHECK(x.is_contiguous() && convolution.weight.is_contiguous() &&
               convolution.weight.dim() == 2 && convolution.weight.size(0) == x.size(-1),
           "contiguous rows, with the taps of each column");
}

}  // namespace

Tensor fused_delta_rule(const DeltaRule& rule, const Tensor& state) {
  check(rule);
  FT_CHECK(!state.defined() || (state.is_contiguous() && rule.sequences() == 1),
           "a state is that of one sequence");
  return kernels_for(rule.mixed).delta_rule(rule, state);
}

DeltaRuleGradients fused_delta_rule_backward(const DeltaRule& rule, const Tensor& gradient) {
  check(rule);
  FT_CHECK(gradient.is_contiguous() && gradient.scalar_type() == rule.mixed.scalar_type() &&
               gradient.numel() == rule.rows() * rule.heads() * rule.value_size(),
           "the gradient of each head's output");
  return kernels_for(rule.mixed).delta_rule_backward(rule, gradient);
}

Tensor fused_short_convolution(const Tensor& x, const ShortConvolution& convolution,
                               const Tensor& before) {
  check(x, convolution);
  return kernels_for(x).short_convolution(x, convolution, before);
}

ShortConvolutionGradients fused_short_convolution_backward(const Tensor& gradient, const Tensor& x,
                                                           const ShortConvolution& convolution) {
  check(x, convolution);
  FT_CHECK(gradient.is_contiguous() && gradient.sizes() == x.sizes() &&
               gradient.scalar_type() == x.scalar_type(),
           "a gradient like the input");
  return kernels_for(x).short_convolution_backward(gradient, x, convolution);
}

}  // namespace finetune::kernels
