// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace finetune::kernels {

// Sums in float64, in sixteen lanes on every processor, so that the bits are equal everywhere.
double sum_of_squares(const float* values, int64_t count);
double sum_of_squares_of_bfloat16(const uint16_t* values, int64_t count);

}  // namespace finetune::kernels
