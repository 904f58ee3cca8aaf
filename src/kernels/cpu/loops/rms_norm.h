// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kernels/cpu/loops/vector_lanes.h"

namespace finetune::kernels {

// The arithmetic over contiguous rows, without torch.
template <typename Storage>
struct RmsNormRows {
  const Storage* input;
  Storage* output;
  const float* weight;
  float epsilon;
  bool adds_one;
  int64_t first_row;
  int64_t last_row;
  int64_t columns;
};

template <typename Storage>
struct RmsNormBackwardRows {
  const Storage* input;
  Storage* gradient;  // of the output; becomes that of the input
  const float* weight;
  float* weight_sums;  // += the weight's gradient
  float epsilon;
  bool adds_one;
  int64_t first_row;
  int64_t last_row;
  int64_t columns;
};

void rms_norm_rows(const RmsNormRows<float>& rows);
void rms_norm_rows(const RmsNormRows<BFloat16Bits>& rows);
void rms_norm_rows(const RmsNormRows<HalfBits>& rows);

void rms_norm_backward_rows(const RmsNormBackwardRows<float>& rows);
void rms_norm_backward_rows(const RmsNormBackwardRows<BFloat16Bits>& rows);
void rms_norm_backward_rows(const RmsNormBackwardRows<HalfBits>& rows);

}  // namespace finetune::kernels
