// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <bit>
#include <cstdint>

// Floats of four bits (a sign, two bits of an exponent, one of a fraction) with a power of two for
// each 32 of a row: MXFP4 of the OCP Microscaling Formats (MX) Specification v1.0, section 5.
namespace finetune {

inline constexpr int64_t kMxfp4Block = 32;
// The values of the codes. Of two in a byte the first is in the low half.
inline constexpr std::array<float, 16> kMxfp4Map = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,
                                                    4.0F,  6.0F,  -0.0F, -0.5F, -1.0F, -1.5F,
                                                    -2.0F, -3.0F, -4.0F, -6.0F};
// The largest whose block float32 and bfloat16 can hold; 255 stands for NaN.
inline constexpr uint8_t kLargestMxfp4Scale = 252;

// 2^(scale - 127). Requires: scale < 255.
[[nodiscard]] constexpr float mxfp4_scale(uint8_t scale) {
  constexpr uint32_t kLeast = 0x00400000;  // 2^-127, which is subnormal
  return std::bit_cast<float>(scale == 0 ? kLeast : static_cast<uint32_t>(scale) << 23);
}

}  // namespace finetune
