// SPDX-License-Identifier: MIT
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/vector_clones.h"

// Functions of one value without branches, so that loops over them become vector code, and the
// formats that tensors are stored in. Bits are the same on every processor: nothing is fused.
namespace finetune::kernels {

struct BFloat16Bits {
  uint16_t bits;
};
struct HalfBits {
  uint16_t bits;
};

FT_INLINE float widen(float x) { return x; }

FT_INLINE float widen(BFloat16Bits x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

// Multiplying by 2^112 moves the exponent's bias, of subnormal numbers too.
FT_INLINE float widen(HalfBits x) {
  const uint32_t magnitude = (x.bits & 0x7FFFU) << 13;
  const auto finite = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1.0p112F);
  const uint32_t value = magnitude >= 0x0F800000U ? magnitude | 0x7F800000U : finite;
  return std::bit_cast<float>(value | (x.bits & 0x8000U) << 16);
}

// Storing rounds to the nearest, ties to even.
FT_INLINE void store(float& target, float x) { target = x; }

FT_INLINE void store(BFloat16Bits& target, float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1)) >> 16;
  const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  target.bits = static_cast<uint16_t>(is_nan ? 0x7FC0U : rounded);
}

FT_INLINE void store(HalfBits& target, float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  const uint32_t normal = (magnitude + 0xFFFU + ((magnitude >> 13) & 1) - 0x38000000U) >> 13;
  // Half's subnormal numbers are multiples of the last place of 0.5.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F000000U;
  const uint32_t finite = magnitude < 0x38800000U ? subnormal : normal;
  const uint32_t bounded = magnitude >= 0x477FF000U ? 0x7C00U : finite;
  const uint32_t value = magnitude > 0x7F800000U ? 0x7E00U : bounded;
  target.bits = static_cast<uint16_t>(value | (bits >> 16 & 0x8000U));
}

// What a kernel reads again is what it has stored.
template <typename Storage>
FT_INLINE float stored(Storage& target, float x) {
  store(target, x);
  return widen(target);
}

// exp(x) for x <= 0, within 2 units in the last place (Cephes' expf): x = n ln 2 + r. NaN stays.
FT_INLINE float exponential(float x) {
  constexpr float kRound = 0x1.8p23F;  // adding it rounds to the nearest integer
  const float shifted = x * 1.44269504088896341F + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  const uint32_t power = (std::bit_cast<uint32_t>(shifted) << 23) + 0x3F800000U;
  return x < -87.0F ? 0.0F : p * std::bit_cast<float>(power);
}

// The standard normal distribution's density, and the function that is its integral. The integral
// is within 2e-7; far below zero its relative error stays below 1e-6 times 1 + x^2.
struct Normal {
  float integral;
  float density;
};

FT_INLINE Normal normal_distribution(float x) {
  const float size = x < 0.0F ? -x : x;
  const float e = exponential(-0.5F * (x * x));
  // integral(-size) / e by a polynomial in t, fitted to the least largest relative error on
  // 0 <= size <= 14 (3e-8), the form of Abramowitz and Stegun 7.1.26.
  const float t = 1.0F / (1.0F + 0.35F * size);
  float p = -0.029146337881684303F;
  p = p * t + 0.14397366344928741F;
  p = p * t - 0.25571826100349426F;
  p = p * t + 0.15917865931987762F;
  p = p * t - 0.023112859576940536F;
  p = p * t + 0.10550925135612488F;
  p = p * t + 0.11983256042003632F;
  p = p * t + 0.13986191153526306F;
  p = p * t + 0.13962140679359436F;
  const float tail = e * (p * t);
  return {x < 0.0F ? tail : 1.0F - tail, 0.398942280401432678F * e};
}

}  // namespace finetune::kernels
