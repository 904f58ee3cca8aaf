// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/plain/operations.h"

namespace finetune::kernels::plain {
namespace {

// In one type.
Tensor xielu_of(const Tensor& x, const Tensor& alpha_p, const Tensor& alpha_n) {
  const Tensor a = at::softplus(alpha_p);
  const Tensor b = 0.5 + at::softplus(alpha_n);
  const Tensor line = 0.5 * x;
  return at::where(x > 0, a * x * x + line, (at::expm1(at::clamp_max(x, -1e-6)) - x) * b + line);
}

}  // namespace

Tensor xielu(const Tensor& x, const Xielu& f) {
  const at::ScalarType type = compute_type(x);
  return xielu_of(x.to(type), f.alpha_p.to(type), f.alpha_n.to(type)).to(x.scalar_type());
}

XieluGradients xielu_backward(const Tensor& gradient, const Tensor& x, const Xielu& f) {
  const at::ScalarType type = compute_type(x);
  const auto leaf_of = [&](const Tensor& values) {
    return values.to(type).detach().clone().requires_grad_();
  };
  const std::vector<Tensor> leaves = {leaf_of(x), leaf_of(f.alpha_p), leaf_of(f.alpha_n)};
  Tensor y;
  {
    const c10::AutoGradMode grad_mode(true);
    y = xielu_of(leaves[0], leaves[1], leaves[2]);
  }
  const std::vector<Tensor> gradients = torch::autograd::grad({y}, leaves, {gradient.to(type)});
  gradient.copy_(gradients[0]);
  return {.alpha_p = gradients[1].view({1, 1}), .alpha_n = gradients[2].view({1, 1})};
}

}  // namespace finetune::kernels::plain

namespace finetune::kernels {

Tensor xielu_plainly(const Tensor& x, const Xielu& f) { return plain::xielu(x, f); }

}  // namespace finetune::kernels
