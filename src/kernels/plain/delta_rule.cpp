// SPDX-License-Identifier: MIT
#include "finetune/kernels/delta_rule.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "kernels/plain/operations.h"

namespace finetune::kernels {
namespace plain {
namespace {

Tensor unit_rows(const Tensor& x) { return x * at::rsqrt((x * x).sum(-1, true) + kDeltaEpsilon); }

Tensor for_heads(const Tensor& x, int64_t heads) {  // [T, Hk, D] -> [T, H, D]
  return x.unsqueeze(2).expand({-1, -1, heads / x.size(1), -1}).flatten(1, 2);
}

// One token after the other, by operators that autograd differentiates. -> [T, H Dv]
Tensor of_sequence(const DeltaRule& rule, const Tensor& mixed, const Tensor& decay,
                   const Tensor& beta, Tensor& state) {
  const int64_t keys = rule.key_heads * rule.key_size;
  const int64_t heads = rule.heads();
  const std::vector<Tensor> parts =
      mixed.split_with_sizes({keys, keys, mixed.size(-1) - 2 * keys}, -1);
  const auto by_head = [](const Tensor& x, int64_t count) { return x.unflatten(-1, {count, -1}); };
  const Tensor query = for_heads(unit_rows(by_head(parts[0], rule.key_heads)), heads) /
                       std::sqrt(static_cast<double>(rule.key_size));
  const Tensor key = for_heads(unit_rows(by_head(parts[1], rule.key_heads)), heads);
  const Tensor value = by_head(parts[2], heads);
  if (!state.defined()) {
    state = at::zeros({heads, rule.key_size, rule.value_size()}, mixed.options());
  }
  std::vector<Tensor> outputs;
  for (int64_t t = 0; t < mixed.size(0); ++t) {
    const Tensor k = key[t].unsqueeze(-1);  // [H, Dk, 1]
    const Tensor decayed = state * decay[t].exp().view({-1, 1, 1});
    const Tensor delta = (value[t] - (decayed * k).sum(1)) * beta[t].unsqueeze(-1);  // [H, Dv]
    state = decayed + k * delta.unsqueeze(1);
    outputs.push_back((state * query[t].unsqueeze(-1)).sum(1).flatten());
  }
  return at::stack(outputs);
}

// `rule`: the shapes; the tensors may have another type.
Tensor of_all(const DeltaRule& rule, const std::vector<Tensor>& inputs, Tensor state) {
  const Tensor& mixed = inputs[0];
  const Tensor decay = -inputs[3].exp() * at::softplus(inputs[1] + inputs[4]);
  const Tensor beta = at::sigmoid(inputs[2]);
  std::vector<int64_t> sizes = mixed.sizes().vec();
  sizes.back() = rule.heads() * rule.value_size();
  // A dry run has no use for the tokens one by one.
  if (mixed.is_meta()) return (mixed.sum() + decay.sum() + beta.sum()).expand(sizes).contiguous();
  std::vector<Tensor> outputs;
  const auto rows = [](const Tensor& x) { return x.reshape({-1, x.size(-1)}); };
  for (int64_t s = 0; s < rule.sequences(); ++s) {
    const int64_t first = rule.tokens.start(s);
    const int64_t count = rule.tokens.start(s + 1) - first;
    const auto part = [&](const Tensor& x) { return rows(x).narrow(0, first, count); };
    Tensor own = state;
    outputs.push_back(of_sequence(rule, part(mixed), part(decay), part(beta), own));
    if (state.defined()) state.copy_(own);
  }
  return at::cat(outputs).view(sizes);
}

// The sum of taps and, with has_silu, its activation, by operators that autograd differentiates.
Tensor convolved(const Tensor& x, const Tensor& weight, const Tensor& bias,
                 const ShortConvolution& convolution, const Tensor& before) {
  const int64_t size = weight.size(1);
  const Tensor all = x.reshape({-1, x.size(-1)});
  std::vector<Tensor> outputs;
  for (int64_t s = 0; s < convolution.tokens.sequences(all.size(0)); ++s) {
    const int64_t first = convolution.tokens.start(s);
    const int64_t count = convolution.tokens.start(s + 1) - first;
    const Tensor start = before.defined() ? before.to(all.scalar_type())
                                          : at::zeros({size - 1, x.size(-1)}, all.options());
    const Tensor rows = at::cat({start, all.narrow(0, first, count)});
    Tensor y;
    for (int64_t k = 0; k < size; ++k) {
      const Tensor tap = rows.narrow(0, k, count) * weight.select(1, k);
      y = y.defined() ? y + tap : bias.defined() ? tap + bias : tap;
    }
    outputs.push_back(convolution.has_silu ? at::silu(y) : y);
  }
  return at::cat(outputs).view(x.sizes());
}

// Leaves of autograd with the values of `inputs` in the type of computation, and the gradients that
// `function` of them gives for that of its result.
template <typename Function>
std::vector<Tensor> gradients_of(const std::vector<Tensor>& inputs, const Tensor& gradient,
                                 const Function& function) {
  const c10::AutoGradMode grad(true);
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) {
    leaves.push_back(input.to(compute_type(input)).detach().clone().requires_grad_());
  }
  const Tensor result = function(leaves);
  return torch::autograd::grad({result}, leaves, {gradient.to(result.scalar_type())});
}

}  // namespace
}  // namespace plain

Tensor delta_rule_plainly(const DeltaRule& rule, const Tensor& state) {
  return plain::of_all(rule, {rule.mixed, rule.a, rule.b, rule.a_log, rule.dt_bias}, state);
}

Tensor short_convolution_plainly(const Tensor& x, const ShortConvolution& convolution,
                                 const Tensor& before) {
  return plain::convolved(x, convolution.weight, convolution.bias, convolution, before);
}

namespace plain {

Tensor delta_rule(const DeltaRule& rule, const Tensor& state) {
  const at::ScalarType type = compute_type(rule.mixed);
  return of_all(rule,
                {rule.mixed.to(type), rule.a.to(type), rule.b.to(type), rule.a_log.to(type),
                 rule.dt_bias.to(type)},
                state)
      .to(rule.mixed.scalar_type());
}

DeltaRuleGradients delta_rule_backward(const DeltaRule& rule, const Tensor& gradient) {
  const std::vector<Tensor> all =
      gradients_of({rule.mixed, rule.a, rule.b, rule.a_log, rule.dt_bias}, gradient,
                   [&](const auto& leaves) { return of_all(rule, leaves, {}); });
  const at::ScalarType type = rule.mixed.scalar_type();
  return {.mixed = all[0].to(type),
          .a = all[1].to(type),
          .b = all[2].to(type),
          .a_log = all[3],
          .dt_bias = all[4]};
}

Tensor short_convolution(const Tensor& x, const ShortConvolution& convolution,
                         const Tensor& before) {
  return convolved(x.to(compute_type(x)), convolution.weight, convolution.bias, convolution, before)
      .to(x.scalar_type());
}

ShortConvolutionGradients short_convolution_backward(const Tensor& gradient, const Tensor& x,
                                                     const ShortConvolution& convolution) {
  std::vector<Tensor> inputs = {x, convolution.weight};
  if (convolution.bias.defined()) inputs.push_back(convolution.bias);
  const std::vector<Tensor> all = gradients_of(inputs, gradient, [&](const auto& leaves) {
    return convolved(leaves[0], leaves[1], leaves.size() > 2 ? leaves[2] : Tensor(), convolution,
                     {});
  });
  return {.input = all[0].to(x.scalar_type()),
          .weight = all[1],
          .bias = all.size() > 2 ? all[2] : Tensor()};
}

}  // namespace plain
}  // namespace finetune::kernels
