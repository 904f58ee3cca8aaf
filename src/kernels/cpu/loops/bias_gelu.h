// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kernels/cpu/loops/vector_lanes.h"

namespace finetune::kernels {

// GELU and its backward pass over contiguous rows, without torch.
template <typename Storage>
struct BiasGeluRows {
  const Storage* input;
  const float* bias;
  Storage* output;  // GELU(input + bias); may be the input
  int64_t first_row;
  int64_t last_row;
  int64_t columns;
};

template <typename Storage>
struct BiasGeluBackwardRows {
  const Storage* input;
  const float* bias;
  Storage* gradient;  // of the output; overwritten with that of input + bias
  float* bias_sums;   // [columns] += the sums of the gradient over rows
  int64_t first_row;
  int64_t last_row;
  int64_t columns;
};

void bias_gelu_rows(const BiasGeluRows<float>& rows);
void bias_gelu_rows(const BiasGeluRows<BFloat16Bits>& rows);
void bias_gelu_rows(const BiasGeluRows<HalfBits>& rows);

void bias_gelu_backward_rows(const BiasGeluBackwardRows<float>& rows);
void bias_gelu_backward_rows(const BiasGeluBackwardRows<BFloat16Bits>& rows);
void bias_gelu_backward_rows(const BiasGeluBackwardRows<HalfBits>& rows);

}  // namespace finetune::kernels
