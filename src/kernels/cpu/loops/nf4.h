// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>

namespace finetune::kernels {

// The arithmetic over contiguous values, without torch.

// Quantises `count` values, which begin with a block; only the last block may be shorter than 64.
void quantize_nf4_blocks(const float* values, int64_t count, const std::array<float, 16>& map,
                         uint8_t* codes, float* scales);

// The two values of each byte, scaled by 1.
using Nf4Pairs = std::array<std::array<float, 2>, 256>;
// Values [first, first + count) of a row.
void dequantize_nf4_values(const uint8_t* codes, const float* scales, const Nf4Pairs& pairs,
                           int64_t first, int64_t count, float* values);

}  // namespace finetune::kernels
