// SPDX-License-Identifier: MIT
#include "finetune/nn/feed_forward.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>

#include <cmath>

namespace finetune::nn {

DenseActivation::DenseActivation(const Scope& scope, int64_t inputs, int64_t outputs, Activation f)
    : dense_(scope, inputs, outputs), activation_(f) {}

// y = f(h) with h = W x + b. The product W x is kept without the bias, and dh = dy f'(h) is the
// product's gradient; db = sum(dh).
Value DenseActivation::operator()(const Value& x, Pass& p) const {
  if (p.is_plain()) {
    const Tensor h = dense_(x, p).tensor;
    return {.tensor = activation_ == nullptr ? at::gelu(h) : activation_(h)};
  }
  const Activation f = activation_;
  const Weight& bias = dense_.bias();
  Value product = dense_.product(x, p);
  const bool needs_gradient = p.trains(bias) || product.slot;
  if (!p.records() || !needs_gradient) {
    kernels::fused_activation(product.tensor, p.values(bias), f, product.tensor);
    return product;
  }
  const auto activated = [&p, f, bias, h = product.tensor] {
    const Tensor result = at::empty_like(h);
    kernels::fused_activation(h, p.values(bias), f, result);
    return result;
  };
  Value y = p.result(activated(), needs_gradient);
  if (p.options().checkpointing.keeps_products()) y.rebuild = activated;
  p.record(y, [&p, f, bias, h = product.tensor, dx = product.slot](Tensor gradient) {
    const Tensor dh = to_overwrite(std::move(gradient));
    p.add(bias, kernels::fused_activation_backward(h, p.values(bias), f, dh));
    give(dx, dh);
    p.complete({bias});
  });
  return y;
}

GatedFeedForward::GatedFeedForward(const Scope& scope, const GatedOptions& o)
    : activation_(o.activation), dropout_(o.dropout) {
  if (o.sparsity > 0.0) deviations_ = deviations_below(o.sparsity);
  if (o.is_fused) {
    gate_up_.emplace(scope / o.gate_up, o.size, 2 * o.intermediate, o.has_bias);
  } else {
    gate_.emplace(scope / o.gate, o.size, o.intermediate, o.has_bias);
    up_.emplace(scope / o.up, o.size, o.intermediate, o.has_bias);
  }
  down_.emplace(scope / o.down, o.intermediate, o.size, o.has_bias || o.has_down_bias);
}

// y = f(gate) * up; dgate = f'(gate) * dy * up by autograd, dup = f(gate) * dy.
Value gated(Value gate, Value up, Activation f, Pass& p) {
  if (p.is_plain()) return {.tensor = f(gate.tensor) * up.tensor};
  const auto product = [f, gate = gate.tensor, up = up.tensor] {
    return kernels::fused_gated_product(gate, up, f);
  };
  Value y = p.result(product(), gate.slot || up.slot);
  if (!y.slot) return y;
  y.rebuild = product;
  p.record(y, [f, gate = std::move(gate), up = std::move(up)](const Tensor& dy) mutable {
    const Tensor of_gate = to_overwrite(std::exchange(gate.tensor, {}));
    const Tensor of_up = to_overwrite(std::exchange(up.tensor, {}));
    kernels::fused_gated_product_backward(of_gate, of_up, f, dy.contiguous());
    give(gate.slot, of_gate);
    give(up.slot, of_up);
  });
  return y;
}

double deviations_below(double share) {
  // In float32, as the peer's quantile is.
  const Tensor at_share = at::full({}, 2.0 * static_cast<float>(share) - 1.0, at::kFloat);
  return at_share.erfinv().item<float>() * std::sqrt(2.0F);
}

Value gaussian_top_k(Value x, double deviations, Pass& p) {
  return p.differentiate({std::move(x)}, {}, [deviations](const std::vector<Tensor>& in) {
    constexpr double kTiny = 1e-30;  // of equal values, whose root has no derivative
    const Tensor centred = in[0] - in[0].mean(-1, true);
    const Tensor deviation = centred.square().mean(-1, true).clamp_min(kTiny).sqrt();
    return (centred - deviation * deviations).relu();
  });
}

Value GatedFeedForward::operator()(Value x, Pass& p) const {
  Value gate, up;
  if (gate_up_) {
    Value both = (*gate_up_)(std::move(x), p);
    const int64_t half = both.tensor.size(-1) / 2;
    std::vector<Value> parts = split(std::move(both), {half, half}, p);
    gate = std::move(parts[0]);
    up = std::move(parts[1]);
  } else {
    const Linear::SharedInput shared(x, {&*gate_, &*up_}, p);
    gate = (*gate_)(x, shared, p);
    up = (*up_)(std::move(x), shared, p);
  }
  if (deviations_) gate = gaussian_top_k(std::move(gate), *deviations_, p);
  Value product = gated(std::move(gate), std::move(up), activation_, p);
  return (*down_)(dropout(std::move(product), dropout_, p), p);
}

Xielu::Xielu(const Scope& scope)
    : alpha_p_(scope.parameter("alpha_p", {1})),
      alpha_n_(scope.parameter("alpha_n", {1})),
      beta_(scope.parameter("beta", {}, ParameterRole::kConstant)),
      eps_(scope.parameter("eps", {}, ParameterRole::kConstant)) {}

Value Xielu::operator()(Value x, Pass& p) const {
  if (p.is_plain()) {
    return {.tensor = kernels::xielu_plainly(
                x.tensor, {.alpha_p = p.leaf(alpha_p_), .alpha_n = p.leaf(alpha_n_)})};
  }
  const auto factors = [this, &p] {
    return kernels::Xielu{.alpha_p = p.values(alpha_p_), .alpha_n = p.values(alpha_n_)};
  };
  const auto activated = [factors, of = x.tensor] { return kernels::fused_xielu(of, factors()); };
  const bool trains = p.trains(alpha_p_) || p.trains(alpha_n_);
  Value y = p.result(activated(), trains || x.slot != nullptr);
  if (p.options().checkpointing.keeps_products()) y.rebuild = activated;
  p.record(y, [this, &p, factors, x = std::move(x)](Tensor gradient) {
    const Tensor dx = to_overwrite(std::move(gradient));
    const kernels::XieluGradients of = kernels::fused_xielu_backward(dx, x.tensor, factors());
    p.add(alpha_p_, of.alpha_p);
    p.add(alpha_n_, of.alpha_n);
    give(x.slot, dx);
    p.complete({alpha_p_, alpha_n_});
  });
  return y;
}

FeedForward::FeedForward(const Scope& scope, const FeedForwardOptions& o)
    : activation_(o.activation) {
  if (o.has_bias) {
    fused_.emplace(scope / o.up, o.size, o.intermediate, o.activation);
  } else {
    up_.emplace(scope / o.up, o.size, o.intermediate, /*has_bias=*/false);
  }
  down_.emplace(scope / o.down, o.intermediate, o.size, o.has_bias);
  if (o.has_xielu) xielu_.emplace(scope / "act_fn");
}

Value FeedForward::operator()(Value x, Pass& p) const {
  if (fused_) return (*down_)((*fused_)(x, p), p);
  Value h = (*up_)(std::move(x), p);
  h = xielu_ ? (*xielu_)(std::move(h), p) : activate(std::move(h), activation_, p);
  return (*down_)(std::move(h), p);
}

}  // namespace finetune::nn
