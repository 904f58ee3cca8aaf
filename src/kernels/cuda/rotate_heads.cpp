// SPDX-License-Identifier: MIT
#include "kernels/cuda/operations.h"
#include "kernels/cuda/rows.h"

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
                                          .heads = static_cast<int>(rotation.heads),
                                          .size = static_cast<int>(size),
                                          .half = static_cast<int>(half),
                                          .back = rotation.back};
  const bool is_vector = size % 4 == 0 && is_aligned(half, {x, rotation.cos, rotation.sin});
  const int64_t pairs = rotation.heads * half;
  launch.run<kernel::rotate_heads>(
      value_type_of(x), is_vector ? 0 : 1,
      {.x = x.numel() / columns, .threads = threads_for(is_vector ? pairs : 4 * pairs)}, arguments);
  return x;
}

}  // namespace finetune::kernels::cuda
