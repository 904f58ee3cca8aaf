// SPDX-License-Identifier: MIT
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

namespace finetune::kernels::cuda {
namespace {

// A sum for each of them is added in one launch.
constexpr int64_t kMostBlocks = 1024;
constexpr int64_t kValuesAtOnce = int64_t{8} * kThreads;

int64_t values_of_block(const Tensor& x) {
  const int64_t loads = (x.numel() + kValuesAtOnce - 1) / kValuesAtOnce;
  return (loads + kMostBlocks - 1) / kMostBlocks * kValuesAtOnce;
}

XieluArguments arguments_of(const Tensor& x, const Tensor& other, const Xielu& f, Launch& launch) {
  return {.x = launch.reads(x),
          .output = nullptr,
          .alpha_p = launch.reads<float>(f.alpha_p),
          .alpha_n = launch.reads<float>(f.alpha_n),
          .parts_p = nullptr,
          .parts_n = nullptr,
          .count = x.numel(),
          .values_of_block = values_of_block(x),
          .is_aligned = is_aligned(x.numel(), {x, other}, 8)};
}

Grid grid_of(const XieluArguments& a) {
  return {.x = (a.count + a.values_of_block - 1) / a.values_of_block};
}

}  // namespace

Tensor xielu(const Tensor& x, const Xielu& f) {
  const Tensor output = at::empty_like(x);
  if (x.numel() == 0) return output;
  Launch launch(x);
  XieluArguments arguments = arguments_of(x, output, f, launch);
  arguments.output = launch.writes(output);
  launch.run<kernel::xielu>(value_type_of(x), 0, grid_of(arguments), arguments);
  return output;
}

XieluGradients xielu_backward(const Tensor& gradient, const Tensor& x, const Xielu& f) {
  if (x.numel() == 0) return plain::xielu_backward(gradient, x, f);
  Launch launch(x);
  XieluArguments arguments = arguments_of(x, gradient, f, launch);
  const Grid grid = grid_of(arguments);
  XieluGradients result = {.alpha_p = at::empty({grid.x, 1}, f.alpha_p.options()),
                           .alpha_n = at::empty({grid.x, 1}, f.alpha_p.options())};
  arguments.output = launch.changes(gradient);
  arguments.parts_p = launch.writes<float>(result.alpha_p);
  arguments.parts_n = launch.writes<float>(result.alpha_n);
  launch.run<kernel::xielu_backward>(value_type_of(x), 0, grid, arguments);
  return result;
}

}  // namespace finetune::kernels::cuda
