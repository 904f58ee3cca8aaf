// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "finetune/tensor/tensor.h"

namespace finetune::kernels {

// x = scale (codes - zero) with codes from 0 to 255, of which zero is one.
struct Uint8Values {
  Tensor codes;  // x's shape, uint8
  double scale = 1.0;
  int64_t zero = 0;
};

// Rounds to the least and the greatest value of x, and 0, as onnxruntime's DynamicQuantizeLinear
// does. Requires: float32 in host memory. If x has NaN or Inf, scale is NaN.
[[nodiscard]] Uint8Values uint8_values(const Tensor& x);

}  // namespace finetune::kernels
