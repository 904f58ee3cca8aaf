// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/tensor/tensor.h"

// The activation after a linear layer together with the layer's bias. Tensors are contiguous,
// input [..., F]; bias [F] float32 (double for double).
namespace finetune::kernels {

using Activation = Tensor (*)(const Tensor&);

// Writes f(input + bias) to `output`, which may be the memory of `input`. A null f is the exact
// GELU.
void bias_activation(const Tensor& input, const Tensor& bias, Activation f, const Tensor& output);

// gradient: of the output; becomes that of input + bias. Returns that of bias: [F] or partial sums
// (partial_sums.h).
[[nodiscard]] Tensor bias_activation_backward(const Tensor& input, const Tensor& bias, Activation f,
                                              const Tensor& gradient);

}  // namespace finetune::kernels
