// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/kernels/layer_operations.h"
#include "finetune/tensor/tensor.h"

namespace finetune::kernels {

// fused_rotation() of layer_operations.h on a device: contiguous tensors.
[[nodiscard]] Tensor rotate_heads(const Tensor& x, const HeadRotation& rotation);

}  // namespace finetune::kernels
