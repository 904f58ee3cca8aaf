// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "finetune/tensor/tensor.h"

// Products as an export in int8 computes them, with onnxruntime's dynamic quantisation
// (DynamicQuantizeLinear and MatMulInteger): codes of rows of weights are made once, those of what
// a product reads from its smallest and largest value.
namespace finetune::nn {

// Whether a matrix of this shape has codes; the few rows of a classifier's labels have none.
[[nodiscard]] bool has_int8_codes(const std::vector<int64_t>& shape);
// Returns the scale of each row of w [N, C], [N, 1]: its largest value has the code 127.
[[nodiscard]] Tensor int8_scales(const Tensor& w);
[[nodiscard]] Tensor int8_codes(const Tensor& w);
// The values that codes and scales mean.
[[nodiscard]] Tensor int8_rounded(const Tensor& w);
// x as its codes of 8 bits without sign mean it, with one scale and one zero.
[[nodiscard]] Tensor uint8_rounded(const Tensor& x);

}  // namespace finetune::nn
