// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/tensor/tensor.h"

namespace finetune::kernels {

// Whether the device multiplies these matrices of 16 bits into float32, by ATen's products with a
// result type: on an NVIDIA GPU the tensor cores do, many times faster than they multiply the same
// values in float32.
[[nodiscard]] bool has_float32_product(const Tensor& a, const Tensor& b);
// target = beta target + a b, for a float32 target of the product's size. Requires: the device has
// it.
void add_float32_product(const Tensor& target, const Tensor& a, const Tensor& b, double beta);

}  // namespace finetune::kernels
