// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/cpu/loops/vector_lanes.h"
#include "kernels/interface/dropout_numbers.h"

namespace finetune::kernels {

// For each row its sequence and its position there, where sequences differ in length. Null:
// computed from the row's number and the length of a sequence.
struct RowPositions {
  const int64_t* sequences = nullptr;
  const int64_t* positions = nullptr;
};

// LN(s) with s = residual + Dropout(product + bias) over contiguous rows [columns], without torch.
template <typename Storage>
struct AddNormRows {
  Storage* sums;            // on entry the product; overwritten with s
  const float* bias;        // of the product
  const Storage* residual;  // null: `sums` already contains s
  Storage* output;
  const float* gamma;
  const float* beta;
  float epsilon;
  std::optional<DropoutNumbers> dropout;
  int64_t rows_per_sample;  // T
  RowPositions row_positions;
  int64_t first_row;
  int64_t last_row;
  int64_t columns;
  float* scratch;  // 2 * columns + kDropoutNumbers values, used by this call only
};

template <typename Storage>
struct AddNormBackwardRows {
  Storage* gradient;  // of the output; overwritten with that of s and of the residual
  Storage* sums;      // s; with dropout overwritten with the gradient of product + bias
  const float* gamma;
  float epsilon;
  std::optional<DropoutNumbers> dropout;
  int64_t rows_per_sample;  // T
  RowPositions row_positions;
  int64_t first_row;
  int64_t last_row;
  int64_t columns;
  float* column_sums;  // += the gradients of gamma, beta and bias, `columns` values each
  float* scratch;      // 2 * columns + kDropoutNumbers values, used by this call only
};

void add_norm_rows(const AddNormRows<float>& rows);
void add_norm_rows(const AddNormRows<BFloat16Bits>& rows);
void add_norm_rows(const AddNormRows<HalfBits>& rows);

void add_norm_backward_rows(const AddNormBackwardRows<float>& rows);
void add_norm_backward_rows(const AddNormBackwardRows<BFloat16Bits>& rows);
void add_norm_backward_rows(const AddNormBackwardRows<HalfBits>& rows);

}  // namespace finetune::kernels
