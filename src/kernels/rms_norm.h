// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/kernels/layer_operations.h"
#include "finetune/tensor/tensor.h"

// The operations of layer_operations.h on a device: tensors [..., C] are contiguous; weight [C]
// float32 (double for double). Sums are float32.
namespace finetune::kernels {

[[nodiscard]] Tensor rms_norm(const Tensor& x, const RmsNorm& norm);
[[nodiscard]] Tensor rms_norm_backward(const Tensor& gradient, const Tensor& x,
                                       const RmsNorm& norm);

}  // namespace finetune::kernels
