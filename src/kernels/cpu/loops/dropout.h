// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>

namespace finetune::kernels {

// The arithmetic of dropout over contiguous float rows, without torch, so that it compiles with
// separate flags. Row r of the call is row `first_row + r` of x: sample = row / rows_per_sample.
struct DropoutRows {
  const float* input;
  float* output;
  int64_t first_row;
  int64_t last_row;
  int64_t columns;
  int64_t rows_per_sample;  // H * T
  int64_t rows_per_head;    // T
  // Sample and row in it, of each row, where samples differ in length; null: by division.
  const int64_t* sequences;
  const int64_t* places;
  std::array<uint32_t, 2> key;
  uint32_t first_place;
  uint32_t layer_and_site;
  uint32_t threshold;  // a number below it is dropped
  float scale;
};

void dropout_rows(const DropoutRows& rows);

}  // namespace finetune::kernels
