// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/bias_gelu.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include "kernels/cpu/operations.h"
#include "kernels/cpu/rows.h"
#include "kernels/plain/operations.h"

namespace finetune::kernels::cpu {

void bias_activation(const Tensor& input, const Tensor& bias, Activation f, const Tensor& output) {
  if (f != nullptr) return plain::bias_activation(input, bias, f, output);
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

// Overwrites the gradient with dh = dy gelu'(h), h = input + bias. Returns the sum of its rows, the
// gradient of the bias; each part of the rows is summed by itself.
Tensor bias_activation_backward(const Tensor& input, const Tensor& bias, Activation f,
                                const Tensor& gradient) {
  if (f != nullptr) return plain::bias_activation_backward(input, bias, f, gradient);
  const int64_t columns = input.size(-1);
  const RowParts parts(input.numel() / columns);
  const Tensor sums = at::zeros({parts.count(), columns}, bias.options());
  with_storage(input.scalar_type(), [&]<typename Storage>(Storage*) {
    const auto* from = static_cast<const Storage*>(input.const_data_ptr());
    auto* to = static_cast<Storage*>(gradient.mutable_data_ptr());
    const auto* add = bias.const_data_ptr<float>();
    auto* sum = sums.mutable_data_ptr<float>();
    at::parallel_for(0, parts.count(), part_grain(parts, columns), [&](int64_t begin, int64_t end) {
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

}  // namespace finetune::kernels::cpu
