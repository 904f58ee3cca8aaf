// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace finetune::kernels {

// In float64, in sixteen lanes whatever the processor.
double sum_of_squares(const float* values, int64_t count);
double sum_of_squares_of_bfloat16(const uint16_t* values, int64_t count);

}  // namespace finetune::kernels
