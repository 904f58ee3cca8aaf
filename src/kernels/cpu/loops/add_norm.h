// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/cpu/loops/vector_lanes.h"
#include "kernels/dropout_numbers.h"

namespace finetune::kernels {

// Sample and row in it, of each row, where samples differ in length; null: by division.
struct RowPlaces {
  const int64_t* sequences = nullptr;
  const int64_t* places = nullptr;
};

// LN(s) with s = residual + Dropout(product + bias), over contiguous rows, without torch.
template <typename Storage>
struct AddNormRows {
  Storage* sums;            // the product; becomes s
  const float* bias;        // of the product
  const Storage* residual;  // null: `sums` is s already
  Storage* output;
  const float* gamma;
  const float* beta;
  float epsilon;
  std::optional<DropoutNumbers> dropout;
  int64_t rows_per_sample;  // T
  RowPlaces row_places;
  int64_t first_row;
  int64_t last_row;
  int64_t columns;
  float* scratch;  // of 2 * columns + kDropoutNumbers values, of this call alone
};

template <typename Storage>
struct AddNormBackwardRows {
  Storage* gradient;  // of the output; becomes that of s and of the residual
  Storage* sums;      // s; becomes the gradient of product + bias where there is dropout
  const float* gamma;
  float epsilon;
  std::optional<DropoutNumbers> dropout;
  int64_t rows_per_sample;  // T
  RowPlaces row_places;
  int64_t first_row;
  int64_t last_row;
  int64_t columns;
  float* column_sums;  // += the gradients of gamma, beta and bias, `columns` values each
  float* scratch;      // of 2 * columns + kDropoutNumbers values, of this call alone
};

void add_norm_rows(const AddNormRows<float>& rows);
void add_norm_rows(const AddNormRows<BFloat16Bits>& rows);
void add_norm_rows(const AddNormRows<HalfBits>& rows);

void add_norm_backward_rows(const AddNormBackwardRows<float>& rows);
void add_norm_backward_rows(const AddNormBackwardRows<BFloat16Bits>& rows);
void add_norm_backward_rows(const AddNormBackwardRows<HalfBits>& rows);

}  // namespace finetune::kernels
