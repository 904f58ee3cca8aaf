// SPDX-License-Identifier: MIT
// The exact GELU of input + bias, x Phi(x), and its derivative Phi(x) + x phi(x). A thread handles
// four columns of a number of rows.
#include "kernels/cuda/device/common.h"

namespace finetune::kernels::cuda {

__device__ inline float normal_share(float x) {  // Phi: share of a standard normal below x
  return 0.5F * (1.0F + erff(x * 0.70710678F));
}

template <class T, int kVariant>
__device__ void bias_gelu(const BiasGeluArguments& a) {
  const i64 first = 4 * (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x);
  if (first >= a.columns) return;
  float bias[4];
  load4(a.bias, first, a.columns, a.is_aligned, bias);
  const i64 begin = blockIdx.y * a.rows_at_once;
  const i64 end = begin + a.rows_at_once < a.rows ? begin + a.rows_at_once : a.rows;
  for (i64 row = begin; row < end; ++row) {
    float x[4];
    load4(static_cast<const T*>(a.input) + row * a.columns, first, a.columns, a.is_aligned, x);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[i] += bias[i];
      x[i] *= normal_share(x[i]);
    }
    store4(static_cast<T*>(a.output) + row * a.columns, first, a.columns, a.is_aligned, x);
  }
}

template <class T, int kVariant>
__device__ void bias_gelu_backward(const BiasGeluArguments& a) {
  const i64 first = 4 * (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x);
  if (first >= a.columns) return;
  float bias[4];
  float sums[4] = {};
  load4(a.bias, first, a.columns, a.is_aligned, bias);
  const i64 begin = blockIdx.y * a.rows_at_once;
  const i64 end = begin + a.rows_at_once < a.rows ? begin + a.rows_at_once : a.rows;
  for (i64 row = begin; row < end; ++row) {
    float x[4];
    float gradient[4];
    T* const gradients = static_cast<T*>(a.output) + row * a.columns;
    load4(static_cast<const T*>(a.input) + row * a.columns, first, a.columns, a.is_aligned, x);
    load4(gradients, first, a.columns, a.is_aligned, gradient);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[i] += bias[i];
      const float density = 0.39894228F * expf(-0.5F * x[i] * x[i]);
      gradient[i] *= normal_share(x[i]) + x[i] * density;
      sums[i] += gradient[i];
    }
    store4(gradients, first, a.columns, a.is_aligned, gradient);
  }
  store4(a.parts + blockIdx.y * a.columns, first, a.columns, a.is_aligned, sums);
}

}  // namespace finetune::kernels::cuda
