// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/cuda/device/common.h"

// Stochastic rounding to bfloat16, and bfloat16 with an int8 correction: bit for bit the arithmetic
// of kernels/cpu/loops/formats.cpp.
namespace finetune::kernels::cuda {

// The 16-bit random numbers of elements [first, first + 4); first is a multiple of four.
__device__ inline void rounding_numbers(u64 first, u64 key, u32* numbers) {
  const u64 block = first / 8;
  u32 c[4] = {static_cast<u32>(block), static_cast<u32>(block >> 32), 0, 0};
  philox(c, static_cast<u32>(key), static_cast<u32>(key >> 32));
  const bool is_second = first % 8 != 0;
  const u32 words[2] = {is_second ? c[2] : c[0], is_second ? c[3] : c[1]};
#pragma unroll
  for (int i = 0; i < 4; ++i) numbers[i] = i % 2 == 0 ? words[i / 2] & 0xFFFFU : words[i / 2] >> 16;
}

// The number of one element. By a choice of values: an index into registers would put them into
// local memory.
__device__ inline u32 rounding_number(u64 element, u64 key) {
  u32 numbers[4];
  rounding_numbers(element / 4 * 4, key, numbers);
  const u32 low = element % 2 == 0 ? numbers[0] : numbers[1];
  const u32 high = element % 2 == 0 ? numbers[2] : numbers[3];
  return element % 4 < 2 ? low : high;
}

__device__ inline u16 round_with(float x, u32 number) {
  constexpr u32 kLargest = 0x7F7FFFFFU;
  const u32 bits = bits_of(x);
  const u32 magnitude = bits & 0x7FFFFFFFU;
  const u32 sum = magnitude + number;
  const u32 finite = sum < kLargest ? sum : kLargest;
  const u32 special = magnitude > 0x7F800000U ? 0x7FC00000U : magnitude;
  const u32 rounded = magnitude < 0x7F800000U ? finite : special;
  return static_cast<u16>((rounded | (bits & 0x80000000U)) >> 16);
}

struct SplitValue {
  u16 weight;
  signed char correction;
};

__device__ inline SplitValue split_value(float x) {
  const u32 bits = bits_of(x);
  const u32 magnitude = bits & 0x7FFFFFFFU;
  const u32 rounded = (magnitude + 0x7FFFU + (magnitude >> 16 & 1U)) >> 16;
  const u32 nearest = rounded < 0x7F7FU ? rounded : 0x7F7FU;
  const int distance = static_cast<int>(magnitude) - static_cast<int>(nearest << 16);
  // If rounding reached the next power of two, the last place of the result is twice as large.
  const u32 exponent = magnitude >> 23;
  const int half = (nearest << 16 >> 23) > exponent && exponent > 0 ? 16 : 15;
  const int scaled = (127 * (distance < 0 ? -distance : distance) + (1 << (half - 1))) >> half;
  const int size = scaled < 127 ? scaled : 127;
  const bool is_negative = (distance < 0) != ((bits >> 31) != 0);
  const bool is_finite = magnitude < 0x7F800000U;
  const u32 special = magnitude > 0x7F800000U ? 0x7FC0U : 0x7F80U;
  const int correction = is_negative ? -size : size;
  return {static_cast<u16>((is_finite ? nearest : special) | (bits >> 16 & 0x8000U)),
          static_cast<signed char>(is_finite ? correction : 0)};
}

__device__ inline float join_value(u16 weight, signed char correction) {
  const float wide = float_of(static_cast<u32>(weight) << 16);
  u32 exponent = weight >> 7 & 0xFFU;
  exponent = exponent < 1 ? 1 : (exponent > 254 ? 254 : exponent);
  const float unit = float_of(exponent << 23);
  const float sum = wide + static_cast<float>(correction) / 127.0F * 0.00390625F * unit;
  return correction == 0 ? wide : sum;  // keeps the sign of zero
}

}  // namespace finetune::kernels::cuda
