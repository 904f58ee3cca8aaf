// SPDX-License-Identifier: MIT
// The exact GELU of input + bias (variant 0) or its tanh form (variant 1), and its derivative. A
// thread handles four columns of a number of rows.
#include "kernels/cuda/device/activations.h"

namespace finetune::kernels::cuda {

// Loads of these rows are under way before the first is stored.
constexpr int kRowsTogether = 4;

template <class T, int kVariant>
__device__ void bias_gelu(const BiasGeluArguments& a) {
  constexpr int kFunction = kVariant == 0 ? kGelu : kTanhGelu;
  const i64 first = 4 * (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x);
  if (first >= a.columns) return;
  float bias[4];
  load4(a.bias, first, a.columns, a.is_aligned, bias);
  const i64 begin = blockIdx.y * a.rows_at_once;
  const i64 end = begin + a.rows_at_once < a.rows ? begin + a.rows_at_once : a.rows;
  for (i64 row = begin; row < end; row += kRowsTogether) {
    float x[kRowsTogether][4];
#pragma unroll
    for (int r = 0; r < kRowsTogether; ++r) {
      if (row + r >= end) continue;
      load4(static_cast<const T*>(a.input) + (row + r) * a.columns, first, a.columns, a.is_aligned,
            x[r]);
    }
#pragma unroll
    for (int r = 0; r < kRowsTogether; ++r) {
      if (row + r >= end) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) x[r][i] = activate<kFunction>(x[r][i] + bias[i]).value;
      store4(static_cast<T*>(a.output) + (row + r) * a.columns, first, a.columns, a.is_aligned,
             x[r]);
    }
  }
}

template <class T, int kVariant>
__device__ void bias_gelu_backward(const BiasGeluArguments& a) {
  constexpr int kFunction = kVariant == 0 ? kGelu : kTanhGelu;
  const i64 first = 4 * (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x);
  if (first >= a.columns) return;
  float bias[4];
  float sums[4] = {};
  load4(a.bias, first, a.columns, a.is_aligned, bias);
  const i64 begin = blockIdx.y * a.rows_at_once;
  const i64 end = begin + a.rows_at_once < a.rows ? begin + a.rows_at_once : a.rows;
  T* const gradients = static_cast<T*>(a.output);
  for (i64 row = begin; row < end; row += kRowsTogether) {
    float x[kRowsTogether][4];
    float gradient[kRowsTogether][4];
#pragma unroll
    for (int r = 0; r < kRowsTogether; ++r) {
      if (row + r >= end) continue;
      load4(static_cast<const T*>(a.input) + (row + r) * a.columns, first, a.columns, a.is_aligned,
            x[r]);
      load4(gradients + (row + r) * a.columns, first, a.columns, a.is_aligned, gradient[r]);
    }
#pragma unroll
    for (int r = 0; r < kRowsTogether; ++r) {
      if (row + r >= end) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        gradient[r][i] *= activate<kFunction>(x[r][i] + bias[i]).slope;
        sums[i] += gradient[r][i];
      }
      store4(gradients + (row + r) * a.columns, first, a.columns, a.is_aligned, gradient[r]);
    }
  }
  store4(a.parts + blockIdx.y * a.columns, first, a.columns, a.is_aligned, sums);
}

}  // namespace finetune::kernels::cuda
