// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/cuda/device/common.h"

namespace finetune::kernels::cuda {

constexpr int kSilu = 0;      // x / (1 + e^-x)
constexpr int kGelu = 1;      // x Phi(x)
constexpr int kTanhGelu = 2;  // x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))

struct Activated {
  float value, slope;
};

struct Normal {
  float share;    // Phi: of a standard normal below x
  float density;  // at x
};

// One exponential and a polynomial for both (Abramowitz and Stegun 1964, 7.1.26): the share's error
// is at most 1e-7, far below the rounding of 16 bits.
__device__ inline Normal approximate_normal(float x) {
  const float z = fabsf(x) * 0.70710678F;
#ifdef __CUDACC__
  const float t = __fdividef(1.0F, fmaf(0.3275911F, z, 1.0F));
#else
  const float t = 1.0F / (fmaf(0.3275911F, z, 1.0F));
#endif
  const float e = exp2f(-0.72134752F * x * x);  // exp(-x^2 / 2)
  const float polynomial =
      t * fmaf(t, fmaf(t, fmaf(t, fmaf(t, 1.06140543F, -1.45315203F), 1.42141374F), -0.28449674F),
               0.25482959F);
  const float tail = 0.5F * polynomial * e;
  return {x < 0.0F ? tail : 1.0F - tail, 0.39894228F * e};
}

// T: what results are rounded to.
template <class T>
__device__ inline Normal normal_of(float x) {
  if constexpr (sizeof(T) == 2) return approximate_normal(x);
  return {0.5F * (1.0F + erff(x * 0.70710678F)), 0.39894228F * expf(-0.5F * x * x)};
}

template <int kFunction, class T>
__device__ inline Activated activate(float x) {
  if constexpr (kFunction == kSilu) {
    const float share = 1.0F / (1.0F + expf(-x));
    return {x * share, share * (1.0F + x * (1.0F - share))};
  } else if constexpr (kFunction == kGelu) {
    const Normal normal = normal_of<T>(x);
    return {x * normal.share, normal.share + x * normal.density};
  } else {
    constexpr float kRoot = 0.79788456F;
    const float cube = 0.044715F * x * x;
    const float t = tanhf(kRoot * x * (1.0F + cube));
    const float half = 0.5F * (1.0F + t);
    return {x * half, half + 0.5F * x * (1.0F - t * t) * kRoot * (1.0F + 3.0F * cube)};
  }
}

}  // namespace finetune::kernels::cuda
