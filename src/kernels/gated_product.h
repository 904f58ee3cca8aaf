// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/kernels/layer_operations.h"
#include "finetune/tensor/tensor.h"

// f(gate) * up of a gated feed-forward network (Shazeer 2020). Tensors are contiguous and of one
// shape and type.
namespace finetune::kernels {

// -> like gate
[[nodiscard]] Tensor gated_product(const Tensor& gate, const Tensor& up, Activation f);

// `gradient` is that of the product; gate and up become their gradients.
void gated_product_backward(const Tensor& gate, const Tensor& up, Activation f,
                            const Tensor& gradient);

}  // namespace finetune::kernels
