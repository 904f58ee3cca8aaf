// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>

namespace finetune::kernels {

// Dropout over contiguous rows of floats, without torch, so that it can be compiled with separate
// flags. Row r of the call is row `first_row + r` of x; its sample is row / rows_per_sample.
struct DropoutRows {
  const float* input;
  float* output;
  int64_t first_row;
  int64_t last_row;
  int64_t columns;
  int64_t rows_per_sample;  // H * T
  int64_t rows_per_head;    // T
  // For each row its sequence and its position there, where sequences differ in length. Null: by
  // division as above.
  const int64_t* sequences;
  const int64_t* positions;
  std::array<uint32_t, 2> key;
  uint32_t first_position;
  uint32_t layer_and_site;
  uint32_t threshold;  // elements with a random number below it are dropped
  float scale;
};

void dropout_rows(const DropoutRows& rows);

}  // namespace finetune::kernels
