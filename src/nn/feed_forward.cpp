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

GatedFeedForward::GatedFeedForward(const Scope& scope, int64_t size, int64_t intermediate,
                                   Activation f)
    : gate_(scope / "gate_proj", size, intermediate, false),
      up_(scope / "up_proj", size, intermediate, false),
      down_(scope / "down_proj", intermediate, size, false),
      activation_(f) {}

Value GatedFeedForward::operator()(const Value& x, Pass& p) const {
  const auto gated = [f = activation_](const std::vector<Tensor>& in) { return f(in[0]) * in[1]; };
  return down_(p.differentiate({gate_(x, p), up_(x, p)}, {}, gated), p);
}

}  // namespace finetune::nn
