// SPDX-License-Identifier: MIT
#include "kernels/interface/bias_gelu.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "finetune/kernels/layer_operations.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/rows.h"

namespace finetune::kernels::cuda {
namespace {

// Without sums over rows, more blocks are faster.
constexpr int64_t kForwardParts = 1024;

int variant_of(Activation f) { return f == tanh_gelu ? 1 : 0; }

bool has_gelu_kernel(const Tensor& input, const Tensor& bias, Activation f, const Tensor& other) {
  return (f == nullptr || f == tanh_gelu) && input.numel() > 0 &&
         bias.scalar_type() == at::kFloat && other.scalar_type() == input.scalar_type();
}

BiasGeluArguments arguments_of(const Tensor& input, const Tensor& bias, const Tensor& other,
                               const RowParts& parts, Launch& launch) {
  const int64_t columns = input.size(-1);
  return {.input = launch.reads(input),
          .bias = launch.reads<float>(bias),
          .output = nullptr,
          .parts = nullptr,
          .rows = input.numel() / columns,
          .rows_at_once = parts.rows_at_once,
          .columns = columns,
          .is_aligned = is_aligned(columns, {input, bias, other}, 8)};
}

Grid grid_of(int64_t columns, const RowParts& parts) {
  const int threads = std::min(threads_for(columns, 2), 4 * kWarp);
  const int64_t of_block = int64_t{8} * threads;
  return {.x = (columns + of_block - 1) / of_block, .y = parts.count, .threads = threads};
}

}  // namespace

void bias_activation(const Tensor& input, const Tensor& bias, Activation f, const Tensor& output) {
  if (!has_gelu_kernel(input, bias, f, output))
    return plain::bias_activation(input, bias, f, output);
  const RowParts parts(input.numel() / input.size(-1), kForwardParts);
  Launch launch(input);
  BiasGeluArguments arguments = arguments_of(input, bias, output, parts, launch);
  arguments.output = launch.writes(output);
  launch.run<kernel::bias_gelu>(value_type_of(input), variant_of(f), grid_of(input.size(-1), parts),
                                arguments);
}

Tensor bias_activation_backward(const Tensor& input, const Tensor& bias, Activation f,
                                const Tensor& gradient) {
  if (!has_gelu_kernel(input, bias, f, gradient)) {
    return plain::bias_activation_backward(input, bias, f, gradient);
  }
  const RowParts parts(input.numel() / input.size(-1));
  const Tensor sums = at::empty({parts.count, input.size(-1)}, bias.options());
  Launch launch(input);
  BiasGeluArguments arguments = arguments_of(input, bias, gradient, parts, launch);
  arguments.output = launch.changes(gradient);
  arguments.parts = launch.writes<float>(sums);
  launch.run<kernel::bias_gelu_backward>(value_type_of(input), variant_of(f),
                                         grid_of(input.size(-1), parts), arguments);
  return sums;
}

}  // namespace finetune::kernels::cuda
