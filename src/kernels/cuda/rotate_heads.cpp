// SPDX-License-Identifier: MIT
#include "finetune/base/error.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

namespace finetune::kernels::cuda {

std::vector<Tensor> rotate_heads(const std::vector<Tensor>& x, const HeadRotation& rotation) {
  const Tensor& first = x.front();
  const int64_t half = rotation.cos.size(-1);
  if (first.numel() == 0 || half == 0 || rotation.cos.scalar_type() != at::kFloat) {
    return plain::rotate_heads(x, rotation);
  }
  FT_CHECK(x.size() <= kRotatedTensors, "queries and keys");
  Launch launch(first);
  RotateHeadsArguments arguments = {.cos = launch.reads<float>(rotation.cos),
                                    .sin = launch.reads<float>(rotation.sin),
                                    .tokens = rotation.cos.size(0),
                                    .rows = first.numel() / first.size(-1),
                                    .size = static_cast<int>(rotation.head_size),
                                    .half = static_cast<int>(half),
                                    .back = rotation.back};
  bool is_vector = rotation.head_size % 4 == 0 && is_aligned(half, {rotation.cos, rotation.sin});
  int64_t heads = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    arguments.values[i] = launch.changes(x[i]);
    arguments.heads[i] = static_cast<int>(x[i].size(-1) / rotation.head_size);
    heads += arguments.heads[i];
    is_vector = is_vector && is_aligned(half, {x[i]});
  }
  const int64_t threads = arguments.rows * heads * (is_vector ? half / 4 : half);
  launch.run<kernel::rotate_heads>(value_type_of(first), is_vector ? 0 : 1,
                                   {.x = (threads + kThreads - 1) / kThreads}, arguments);
  return x;
}

}  // namespace finetune::kernels::cuda
