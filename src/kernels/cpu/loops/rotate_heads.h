// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kernels/cpu/loops/vector_lanes.h"

namespace finetune::kernels {

// The arithmetic over contiguous rows, without torch.
template <typename Storage>
struct RotatedRows {
  Storage* values;   // [rows, heads, size]
  const float* cos;  // [tokens, half]
  const float* sin;
  int64_t heads;
  int64_t size;
  int64_t half;
  int64_t tokens;  // row r is token r mod tokens
  bool back;
  int64_t first_row;
  int64_t last_row;
};

void rotate_rows(const RotatedRows<float>& rows);
void rotate_rows(const RotatedRows<BFloat16Bits>& rows);
void rotate_rows(const RotatedRows<HalfBits>& rows);

}  // namespace finetune::kernels
