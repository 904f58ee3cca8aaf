// SPDX-License-Identifier: MIT
#include "finetune/nn/feed_forward.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>

namespace finetune::nn {

DenseActivation::DenseActivation(const Scope& scope, int64_t inputs, int64_t outputs, Activation f)
    : dense_(scope / "dense", inputs, outputs), activation_(f) {}

Value DenseActivation::operator()(const Value& x, Pass& p) const {
  if (p.is_plain()) {
    const Tensor h = dense_(x, p).tensor;
    return {.tensor = activation_ == nullptr ? at::gelu(h) : activation_(h)};
  }
  const Activation f = activation_;
  const Tensor& bias = dense_.bias();
  Value product = dense_.product(x, p);
  if (!p.records()) {
    kernels::fused_activation(product.tensor, p.values(bias), f, product.tensor);
    return product;
  }
  const auto activated = [&p, f, bias, h = product.tensor] {
    const Tensor result = at::empty_like(h);
    kernels::fused_activation(h, p.values(bias), f, result);
    return result;
  };
  Value y = p.result(activated());
  if (p.options().selective) y.rebuild = activated;
  p.record(y, [&p, f, bias, h = product.tensor, dx = product.slot](Tensor gradient) {
    const Tensor dh = to_overwrite(std::move(gradient));
    p.add(bias, kernels::fused_activation_backward(h, p.values(bias), f, dh));
    dx->give(dh);
    p.complete({bias});
  });
  return y;
}

GatedFeedForward::GatedFeedForward(const Scope& scope, const GatedOptions& o)
    : activation_(o.activation) {
  if (o.is_fused) {
    gate_up_.emplace(scope / "gate_up_proj", o.size, 2 * o.intermediate, o.has_bias);
  } else {
    gate_.emplace(scope / "gate_proj", o.size, o.intermediate, o.has_bias);
    up_.emplace(scope / "up_proj", o.size, o.intermediate, o.has_bias);
  }
  down_.emplace(scope / "down_proj", o.intermediate, o.size, o.has_bias);
}

Value GatedFeedForward::operator()(const Value& x, Pass& p) const {
  const auto gated = [f = activation_](const std::vector<Tensor>& in) {
    const std::vector<Tensor> halves = in.size() == 2 ? in : in[0].chunk(2, -1);
    return f(halves[0]) * halves[1];
  };
  if (gate_up_) return (*down_)(p.differentiate({(*gate_up_)(x, p)}, {}, gated), p);
  return (*down_)(p.differentiate({(*gate_)(x, p), (*up_)(x, p)}, {}, gated), p);
}

}  // namespace finetune::nn
