// SPDX-License-Identifier: MIT
#include <ATen/ops/empty_like.h>

#include "kernels/cuda/operations.h"
#include "kernels/cuda/rows.h"

namespace finetune::kernels::cuda {

Tensor dropout(const Tensor& x, const DropoutNumbers& numbers, const TokenLayout* layout) {
  const Tensor input = x.contiguous();
  const Tensor output = at::empty_like(input);
  const int64_t columns = x.size(-1);
  Launch launch(input);
  const DropoutKernelArguments arguments = {
      .input = launch.reads(input),
      .output = launch.writes(output),
      .rows = columns == 0 ? 0 : x.numel() / columns,
      .columns = columns,
      .heads = x.dim() == 4 ? static_cast<int>(x.size(1)) : 1,
      .dropout = dropout_arguments(numbers, x.size(-2), layout, launch)};
  const int64_t vectors = arguments.rows * ((columns + 3) / 4);
  launch.run<kernel::dropout>(value_type_of(x), 0, {.x = (vectors + kThreads - 1) / kThreads},
                              arguments);
  return output;
}

}  // namespace finetune::kernels::cuda
