// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace finetune::kernels::cpu {

// A float32 matrix in memory that it does not own. Strides are in values.
struct Matrix {
  float* data;
  int64_t rows, columns;
  int64_t row_stride, column_stride;

  [[nodiscard]] Matrix t() const { return {data, columns, rows, column_stride, row_stride}; }
  [[nodiscard]] Matrix row_range(int64_t first, int64_t count) const {
    return {data + first * row_stride, count, columns, row_stride, column_stride};
  }
};

// The same memory as a tensor [rows, columns], valid as long as the memory is.
[[nodiscard]] at::Tensor as_tensor(const Matrix& x);

// target <- beta * target + alpha * a b, to the bits of Tensor::addmm_ for views of these strides:
// the same call of BLAS, without ATen's views and dispatch, which cost more than a product of the
// size of an attention head. Each matrix is contiguous along rows or columns.
void multiply(const Matrix& target, const Matrix& a, const Matrix& b, float beta = 0.0F,
              float alpha = 1.0F);

}  // namespace finetune::kernels::cpu
