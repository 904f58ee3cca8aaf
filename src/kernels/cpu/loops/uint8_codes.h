// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace finetune::kernels {

// codes[i] = min(max(round(values[i] / scale) + zero, 0), 255), ties to even; NaN becomes 0.
void uint8_codes(const float* values, int64_t count, float scale, float zero, uint8_t* codes);

}  // namespace finetune::kernels
