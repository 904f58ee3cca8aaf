// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/tensor/tensor.h"

// Products as an export in int8 computes them, with onnxruntime's dynamic quantisation
// (DynamicQuantizeLinear and MatMulInteger): codes of rows of weights are made once, those of what
// a product reads from its smallest and largest value.
namespace finetune::nn {

// Whether a matrix of this shape has codes; the few rows of a classifier's labels have none.
[[nodiscard]] bool has_int8_codes(c10::IntArrayRef shape);
// Returns the scale of each row of w [N, C], [N, 1]: its largest value has the code 127.
[[nodiscard]] Tensor int8_scales(const Tensor& w);
[[nodiscard]] Tensor int8_codes(const Tensor& w);
// The values that codes and scales mean.
[[nodiscard]] Tensor int8_rounded(const Tensor& w);

// A matrix [N, C] for products.
struct Int8Matrix {
  // Packed as oneDNN takes them; where torch has no such product, the values in float32.
  Tensor codes;
  Tensor scales;  // [N] float32
};
[[nodiscard]] Int8Matrix int8_matrix(const Tensor& w);
// x W^T + b of x [.., C] in float32 on the CPU, for which x is rounded to 8 bits without sign with
// one scale and one zero. `bias` may be undefined.
[[nodiscard]] Tensor int8_linear(const Tensor& x, const Int8Matrix& matrix, const Tensor& bias);

}  // namespace finetune::nn
