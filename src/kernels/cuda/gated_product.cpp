// SPDX-License-Identifier: MIT
#include <ATen/ops/empty_like.h>

#include <optional>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

namespace finetune::kernels::cuda {
namespace {

std::optional<int> gated_variant_of(Activation f) {
  if (f == silu) return 0;
  if (f == gelu) return 1;
  if (f == tanh_gelu) return 2;
  return std::nullopt;
}

Grid grid_of(const Tensor& x) {
  constexpr int64_t kValuesOfBlock = int64_t{8} * kThreads;
  return {.x = (x.numel() + kValuesOfBlock - 1) / kValuesOfBlock};
}

}  // namespace

Tensor gated_product(const Tensor& gate, const Tensor& up, Activation f) {
  const std::optional<int> variant = gated_variant_of(f);
  if (!variant) return plain::gated_product(gate, up, f);
  const Tensor output = at::empty_like(gate);
  Launch launch(gate);
  const GatedProductArguments arguments = {
      .gate = const_cast<void*>(launch.reads(gate)),
      .up = const_cast<void*>(launch.reads(up)),
      .output = launch.writes(output),
      .gradient = nullptr,
      .count = gate.numel(),
      .is_aligned = is_aligned(gate.numel(), {gate, up, output}, 8)};
  launch.run<kernel::gated_product>(value_type_of(gate), *variant, grid_of(gate), arguments);
  return output;
}

void gated_product_backward(const Tensor& gate, const Tensor& up, Activation f,
                            const Tensor& gradient) {
  const std::optional<int> variant = gated_variant_of(f);
  if (!variant) return plain::gated_product_backward(gate, up, f, gradient);
  Launch launch(gate);
  const GatedProductArguments arguments = {
      .gate = launch.changes(gate),
      .up = launch.changes(up),
      .output = nullptr,
      .gradient = launch.reads(gradient),
      .count = gate.numel(),
      .is_aligned = is_aligned(gate.numel(), {gate, up, gradient}, 8)};
  launch.run<kernel::gated_product_backward>(value_type_of(gate), *variant, grid_of(gate),
                                             arguments);
}

}  // namespace finetune::kernels::cuda
