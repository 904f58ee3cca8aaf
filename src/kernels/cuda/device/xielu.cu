// SPDX-License-Identifier: MIT
// xIELU (Huang and Schlag 2024) and its derivatives. A thread handles eight values at a time.
#include "kernels/cuda/device/common.h"

namespace finetune::kernels::cuda {

constexpr float kLine = 0.5F;       // the slope of the line that is added
constexpr float kLargest = -1e-6F;  // of the exponential's argument

__device__ inline float softplus_of(float x) { return x > 20.0F ? x : log1pf(expf(x)); }

template <class T, int kVariant>
__device__ void xielu(const XieluArguments& a) {
  const float of_squares = softplus_of(*a.alpha_p);
  const float of_powers = kLine + softplus_of(*a.alpha_n);
  const i64 begin = blockIdx.x * a.values_of_block;
  const i64 end = begin + a.values_of_block < a.count ? begin + a.values_of_block : a.count;
  for (i64 first = begin + 8 * static_cast<i64>(threadIdx.x); first < end;
       first += 8 * blockDim.x) {
    float x[8];
    load8(static_cast<const T*>(a.x), first, a.count, a.is_aligned, x);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float power = expm1f(x[i] < kLargest ? x[i] : kLargest);
      const float own = x[i] > 0.0F ? of_squares * x[i] * x[i] : of_powers * (power - x[i]);
      x[i] = own + kLine * x[i];
    }
    store8(static_cast<T*>(a.output), first, a.count, a.is_aligned, x);
  }
}

template <class T, int kVariant>
__device__ void xielu_backward(const XieluArguments& a) {
  __shared__ float shared[kThreads / kWarp];
  const float of_squares = softplus_of(*a.alpha_p);
  const float of_powers = kLine + softplus_of(*a.alpha_n);
  const i64 begin = blockIdx.x * a.values_of_block;
  const i64 end = begin + a.values_of_block < a.count ? begin + a.values_of_block : a.count;
  float squares = 0.0F;
  float powers = 0.0F;
  for (i64 first = begin + 8 * static_cast<i64>(threadIdx.x); first < end;
       first += 8 * blockDim.x) {
    float x[8];
    float dy[8];
    load8(static_cast<const T*>(a.x), first, a.count, a.is_aligned, x);
    load8(static_cast<const T*>(a.output), first, a.count, a.is_aligned, dy);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (first + i >= a.count) break;
      const float power = expm1f(x[i] < kLargest ? x[i] : kLargest);
      float slope = kLine;
      if (x[i] > 0.0F) {
        slope += 2.0F * of_squares * x[i];
        squares += dy[i] * x[i] * x[i];
      } else {
        slope += of_powers * (x[i] < kLargest ? power : -1.0F);
        powers += dy[i] * (power - x[i]);
      }
      // A NaN goes to the gradient as it came.
      dy[i] = x[i] == x[i] ? dy[i] * slope : x[i];
    }
    store8(static_cast<T*>(a.output), first, a.count, a.is_aligned, dy);
  }
  squares = block_sum(squares, shared);
  powers = block_sum(powers, shared);
  if (threadIdx.x != 0) return;
  a.parts_p[blockIdx.x] = squares / (1.0F + expf(-*a.alpha_p));
  a.parts_n[blockIdx.x] = powers / (1.0F + expf(-*a.alpha_n));
}

}  // namespace finetune::kernels::cuda
