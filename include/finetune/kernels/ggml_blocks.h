// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>

namespace finetune {

constexpr size_t kGgmlBlock = 32;      // values with one scale
constexpr size_t kGgmlScaleBytes = 2;  // float16

// Encode `blocks` of finite values by the formula of ggml's reference quantisers, bit for bit.
void encode_q8_0(const float* values, size_t blocks, uint8_t* bytes);
void encode_q4_0(const float* values, size_t blocks, uint8_t* bytes);

// Returns the largest magnitude of finite values.
[[nodiscard]] float largest_of(const float* values, size_t count);

}  // namespace finetune
