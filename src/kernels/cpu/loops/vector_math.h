// SPDX-License-Identifier: MIT
#pragma once

#include <bit>

#include "kernels/cpu/loops/vector_lanes.h"

// Branch-free functions of lanes.
namespace finetune::kernels {

// exp(x) for x <= 0, within 2 units in the last place (Cephes' expf): x = n ln 2 + r, and exp(x) =
// 2^n p(r). ln 2 is subtracted in two parts, which keeps r exact to float32. NaN stays NaN. Float
// is a float or a vector of floats, Bits an unsigned integer type of the same shape.
template <typename Float, typename Bits>
FT_INLINE Float exponential_of(Float x) {
  constexpr float kRound = 0x1.8p23F;  // adding it rounds to the nearest integer
  const Float shifted = x * 1.44269504088896341F + kRound;
  const Float n = shifted - kRound;
  const Float r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  Float p = r * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  const Bits power = (std::bit_cast<Bits>(shifted) << 23) + 0x3F800000U;
  return x < -87.0F ? Float{} : p * std::bit_cast<Float>(power);
}

// exp(x) - 1 - x for x <= 0, which cancels near zero: there it is the polynomial without its line.
template <int W>
FT_INLINE typename Vector<W>::Float remainder_of_exponential(typename Vector<W>::Float x) {
  using Float = typename Vector<W>::Float;
  Float p = x * 1.9875691500e-4F + 1.3981999507e-3F;
  p = p * x + 8.3334519073e-3F;
  p = p * x + 4.1665795894e-2F;
  p = p * x + 1.6666665459e-1F;
  p = p * x + 5.0000001201e-1F;
  const Float far = exponential_of<Float, typename Vector<W>::Bits>(x) - 1.0F - x;
  return x > -0.34F ? p * (x * x) : far;
}

FT_INLINE float exponential(float x) { return exponential_of<float, uint32_t>(x); }

template <int W>
FT_INLINE typename Vector<W>::Float exponential(typename Vector<W>::Float x) {
  return exponential_of<typename Vector<W>::Float, typename Vector<W>::Bits>(x);
}

template <int W>
FT_INLINE Lanes<W> exponential(const Lanes<W>& x) {
  return map(x, [](auto part) FT_INLINE_LAMBDA { return exponential<W>(part); });
}

template <int W>
FT_INLINE Lanes<W> sigmoid(const Lanes<W>& x) {
  return map(x, [](auto part) FT_INLINE_LAMBDA {
    const auto e = exponential<W>(part < 0.0F ? part : -part);
    const auto inverse = 1.0F / (1.0F + e);
    return part < 0.0F ? e * inverse : inverse;
  });
}

// The density of the standard normal distribution and its integral, the distribution function. The
// integral is within 2e-7; far below zero its relative error stays below 1e-6 times 1 + x^2.
template <int W>
struct Normal {
  typename Vector<W>::Float integral;
  typename Vector<W>::Float density;
};

template <int W>
FT_INLINE Normal<W> normal_distribution(typename Vector<W>::Float x) {
  using Float = typename Vector<W>::Float;
  const Float size = x < 0.0F ? -x : x;
  const Float e = exponential<W>(x * x * -0.5F);
  // integral(-size) / e is a polynomial in t = 1 / (1 + 0.35 size), the form of Abramowitz and
  // Stegun 7.1.26, fitted for the smallest maximal relative error on 0 <= size <= 14 (3e-8).
  const Float t = 1.0F / (size * 0.35F + 1.0F);
  Float p = t * -0.029146337881684303F + 0.14397366344928741F;
  p = p * t - 0.25571826100349426F;
  p = p * t + 0.15917865931987762F;
  p = p * t - 0.023112859576940536F;
  p = p * t + 0.10550925135612488F;
  p = p * t + 0.11983256042003632F;
  p = p * t + 0.13986191153526306F;
  p = p * t + 0.13962140679359436F;
  const Float tail = e * (p * t);
  return {x < 0.0F ? tail : 1.0F - tail, e * 0.398942280401432678F};
}

}  // namespace finetune::kernels
