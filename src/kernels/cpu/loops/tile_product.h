// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace finetune::kernels {

// Products of float32 matrices that fit a core's cache, such as an attention head's, without torch
// and without copies. Sums run in order of k, one multiply-add per term, so that a value's bits
// depend on its row and column of the factors alone, not on how many others there are.
struct TileProduct {
  const float* left;              // [rows, sums]
  int64_t left_row, left_column;  // strides
  const float* right;             // [sums, columns], which is read up to whole_vectors(columns)
  int64_t right_row;              // stride
  float* target;                  // [rows, columns]
  int64_t target_row;             // stride
  int64_t rows, columns, sums;
  float scale = 1.0F;
};

// The columns that are read of a right factor.
[[nodiscard]] constexpr int64_t whole_vectors(int64_t columns) { return (columns + 15) / 16 * 16; }

// target = scale left right
void set_product(const TileProduct& product);
// target += scale left right, which is summed before.
void add_product(const TileProduct& product);

// target[c * columns + r] = source[r * stride + c]; the columns from `rows` on become zero.
struct Transposition {
  const float* source;
  int64_t stride;
  int64_t rows;
  int64_t width;
  float* target;
  int64_t columns;
};
void transpose_tile(const Transposition& arguments);

}  // namespace finetune::kernels
