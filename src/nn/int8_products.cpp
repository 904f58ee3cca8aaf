// SPDX-License-Identifier: MIT
#include "finetune/nn/int8_products.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>

namespace finetune::nn {

bool has_int8_codes(const std::vector<int64_t>& shape) {
  constexpr int64_t kFewRows = 16;
  return shape.size() == 2 && shape[0] >= kFewRows;
}

Tensor int8_scales(const Tensor& w) {
  const Tensor largest = w.abs().amax({1}, /*keepdim=*/true);
  return at::where(largest.gt(0), largest / 127.0, at::ones({1}, largest.options()));
}

Tensor int8_codes(const Tensor& w) {
  return (w / int8_scales(w)).round().clamp(-127, 127).to(at::kChar);
}

Tensor int8_rounded(const Tensor& w) { return int8_codes(w).to(at::kFloat) * int8_scales(w); }

Tensor uint8_rounded(const Tensor& x) {
  const Tensor least = x.min().clamp_max(0);
  const Tensor range = x.max().clamp_min(0) - least;
  const Tensor scale = at::where(range.gt(0), range / 255.0, at::ones({}, range.options()));
  const Tensor zero = (-least / scale).round().clamp(0, 255);
  return (((x / scale).round() + zero).clamp(0, 255) - zero) * scale;
}

}  // namespace finetune::nn
