// SPDX-License-Identifier: MIT
#include "kernels/bias_gelu.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "finetune/base/error.h"
#include "kernels/bias_gelu_cpu.h"
#include "kernels/storage.h"

namespace finetune::kernels {
namespace {

constexpr int64_t kRowsAtOnce = 256;  // of activations that autograd differentiates

void gelu_cpu(const Tensor& input, const Tensor& bias, const Tensor& output) {
  const int64_t columns = input.size(-1);
  with_storage(input.scalar_type(), [&]<typename Storage>(Storage*) {
    const auto* from = static_cast<const Storage*>(input.const_data_ptr());
    auto* to = static_cast<Storage*>(output.mutable_data_ptr());
    const auto* add = bias.const_data_ptr<float>();
    at::parallel_for(0, input.numel() / columns, row_grain(columns),
                     [&](int64_t begin, int64_t end) {
                       bias_gelu_rows(BiasGeluRows<Storage>{.input = from,
                                                            .bias = add,
                                                            .output = to,
                                                            .first_row = begin,
                                                            .last_row = end,
                                                            .columns = columns});
                     });
  });
}

Tensor gelu_backward_cpu(const Tensor& input, const Tensor& bias, const Tensor& gradient) {
  const int64_t columns = input.size(-1);
  const RowParts parts(input.numel() / columns);
  const Tensor sums = at::zeros({parts.count(), columns}, bias.options());
  with_storage(input.scalar_type(), [&]<typename Storage>(Storage*) {
    const auto* from = static_cast<const Storage*>(input.const_data_ptr());
    auto* to = static_cast<Storage*>(gradient.mutable_data_ptr());
    const auto* add = bias.const_data_ptr<float>();
    auto* sum = sums.mutable_data_ptr<float>();
    at::parallel_for(0, parts.count(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        bias_gelu_backward_rows(BiasGeluBackwardRows<Storage>{.input = from,
                                                              .bias = add,
                                                              .gradient = to,
                                                              .bias_sums = sum + part * columns,
                                                              .first_row = parts.begin(part),
                                                              .last_row = parts.end(part),
                                                              .columns = columns});
      }
    });
  });
  return sums.sum(0);
}

// Calls function(input, other) for some rows at a time, so that temporary memory does not grow.
template <typename Function>
void by_rows(const Tensor& input, const Tensor& other, const Function& function) {
  const Tensor rows = input.view({-1, input.size(-1)});
  const Tensor other_rows = other.view({-1, input.size(-1)});
  for (int64_t first = 0; first < rows.size(0); first += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, rows.size(0) - first);
    function(rows.narrow(0, first, count), other_rows.narrow(0, first, count));
  }
}

}  // namespace

void bias_gelu_reference(const Tensor& input, const Tensor& bias, const Tensor& output) {
  output.copy_(at::gelu(input.to(compute_type(input)) + bias));
}

Tensor bias_gelu_backward_reference(const Tensor& input, const Tensor& bias,
                                    const Tensor& gradient) {
  const at::ScalarType type = compute_type(input);
  const Tensor of_input = at::gelu_backward(gradient.to(type), input.to(type) + bias);
  gradient.copy_(of_input);
  return of_input.view({-1, input.size(-1)}).sum(0);
}

void bias_activation(const Tensor& input, const Tensor& bias, Activation f, const Tensor& output) {
  FT_CHECK(input.is_contiguous() && output.is_contiguous(), "rows are contiguous");
  if (f == nullptr && has_row_kernel(input)) {
    gelu_cpu(input, bias, output);
  } else if (f == nullptr) {
    bias_gelu_reference(input, bias, output);
  } else {
    by_rows(input, output, [&](const Tensor& from, const Tensor& to) {
      to.copy_(f(from.to(compute_type(input)) + bias));
    });
  }
}

Tensor bias_activation_backward(const Tensor& input, const Tensor& bias, Activation f,
                                const Tensor& gradient) {
  FT_CHECK(input.is_contiguous() && gradient.is_contiguous(), "rows are contiguous");
  if (f == nullptr && has_row_kernel(input)) return gelu_backward_cpu(input, bias, gradient);
  if (f == nullptr) return bias_gelu_backward_reference(input, bias, gradient);
  const Tensor sums = at::zeros_like(bias);
  by_rows(input, gradient, [&](const Tensor& from, const Tensor& rows) {
    const at::ScalarType type = compute_type(input);
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

}  // namespace finetune::kernels
