// SPDX-License-Identifier: MIT
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

namespace finetune::kernels::cuda {

Tensor rotate_heads(const Tensor& x, const HeadRotation& rotation) {
  const int64_t half = rotation.cos.size(-1);
  if (x.numel() == 0 || half == 0 || rotation.cos.scalar_type() != at::kFloat) {
    return plain::rotate_heads(x, rotation);
  }
  const int64_t columns = x.size(-1);
  const int64_t size = columns / rotation.heads;
  Launch launch(x);
  const RotateHeadsArguments arguments = {.values = launch.changes(x),
                                          .cos = launch.reads<float>(rotation.cos),
                                          .sin = launch.reads<float>(rotation.sin),
                                          .tokens = rotation.cos.size(0),
                                          .rows = x.numel() / columns,
                                          .heads = static_cast<int>(rotation.heads),
                                          .size = static_cast<int>(size),
                                          .half = static_cast<int>(half),
                                          .back = rotation.back};
  const bool is_vector = size % 4 == 0 && is_aligned(half, {x, rotation.cos, rotation.sin});
  const int64_t threads = arguments.rows * rotation.heads * (is_vector ? half / 4 : half);
  launch.run<kernel::rotate_heads>(value_type_of(x), is_vector ? 0 : 1,
                                   {.x = (threads + kThreads - 1) / kThreads}, arguments);
  return x;
}

}  // namespace finetune::kernels::cuda
