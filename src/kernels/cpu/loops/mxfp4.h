// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>

namespace finetune::kernels {

// The two values of each byte, scaled by 1.
using Mxfp4Pairs = std::array<std::array<float, 2>, 256>;
// Whole blocks, without torch.
void dequantize_mxfp4_blocks(const uint8_t* codes, const uint8_t* scales, const Mxfp4Pairs& pairs,
                             int64_t blocks, float* values);

}  // namespace finetune::kernels
