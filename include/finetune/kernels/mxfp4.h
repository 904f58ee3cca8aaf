// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "finetune/base/mxfp4.h"
#include "finetune/tensor/tensor.h"

namespace finetune::kernels {

// Returns values [first, first + count) of a row in this type, which holds them exactly: float32 or
// bfloat16; float16 rounds. `codes` uint8 [n / 2], `scales` uint8 [n / 32], contiguous, on any
// device. Requires: they are there, and both numbers are multiples of kMxfp4Block.
[[nodiscard]] Tensor dequantize_mxfp4(const Tensor& codes, const Tensor& scales, int64_t first,
                                      int64_t count, at::ScalarType type);

}  // namespace finetune::kernels
