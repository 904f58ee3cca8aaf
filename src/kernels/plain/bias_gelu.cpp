// SPDX-License-Identifier: MIT
#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "finetune/tensor/device.h"
#include "kernels/plain/operations.h"

namespace finetune::kernels::plain {
namespace {

constexpr int64_t kRowsAtOnce = 256;  // of activations that autograd differentiates

// Calls function(input, other) for some rows at a time, which bounds temporary memory; XLA would
// copy the whole tensor for each part that is written.
template <typename Function>
void by_rows(const Tensor& input, const Tensor& other, const Function& function) {
  const Tensor rows = input.view({-1, input.size(-1)});
  const Tensor other_rows = other.view({-1, input.size(-1)});
  const int64_t at_once = compiles_shapes(input.device()) ? rows.size(0) : kRowsAtOnce;
  for (int64_t first = 0; first < rows.size(0); first += at_once) {
    const int64_t count = std::min(at_once, rows.size(0) - first);
    function(rows.narrow(0, first, count), other_rows.narrow(0, first, count));
  }
}

}  // namespace

void bias_activation(const Tensor& input, const Tensor& bias, Activation f, const Tensor& output) {
  if (f == nullptr) {
    output.copy_(at::gelu(input.to(compute_type(input)) + bias));
    return;
  }
  by_rows(input, output, [&](const Tensor& from, const Tensor& to) {
    to.copy_(f(from.to(compute_type(input)) + bias));
  });
}

// Overwrites the gradient with dh = dy f'(h), h = input + bias, and returns the sum of its rows,
// the gradient of the bias.
Tensor bias_activation_backward(const Tensor& input, const Tensor& bias, Activation f,
                                const Tensor& gradient) {
  const at::ScalarType type = compute_type(input);
  if (f == nullptr) {
    const Tensor of_input = at::gelu_backward(gradient.to(type), input.to(type) + bias);
    gradient.copy_(of_input);
    return of_input.view({-1, input.size(-1)}).sum(0);
  }
  const Tensor sums = at::zeros_like(bias);
  by_rows(input, gradient, [&](const Tensor& from, const Tensor& rows) {
    Tensor of_input;
    {
      const c10::AutoGradMode grad_mode(true);
      const Tensor leaf = (from.to(type) + bias).detach().requires_grad_();
      of_input = torch::autograd::grad({f(leaf)}, {leaf}, {rows.to(type)}).front();
    }
    rows.copy_(of_input);
    sums.add_(of_input.sum(0));
  });
  return sums;
}

}  // namespace finetune::kernels::plain
