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

__device__ inline float normal_share(float x) {  // Phi: share of a standard normal below x
  return 0.5F * (1.0F + erff(x * 0.70710678F));
}

template <int kFunction>
__device__ inline Activated activate(float x) {
  if constexpr (kFunction == kSilu) {
    const float share = 1.0F / (1.0F + expf(-x));
    return {x * share, share * (1.0F + x * (1.0F - share))};
  } else if constexpr (kFunction == kGelu) {
    const float share = normal_share(x);
    return {x * share, share + x * 0.39894228F * expf(-0.5F * x * x)};
  } else {
    constexpr float kRoot = 0.79788456F;
    const float cube = 0.044715F * x * x;
    const float t = tanhf(kRoot * x * (1.0F + cube));
    const float half = 0.5F * (1.0F + t);
    return {x * half, half + 0.5F * x * (1.0F - t * t) * kRoot * (1.0F + 3.0F * cube)};
  }
}

}  // namespace finetune::kernels::cuda
