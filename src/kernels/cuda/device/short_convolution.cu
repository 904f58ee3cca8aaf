// SPDX-License-Identifier: MIT
// Convolutions of columns over the last tokens of a sequence (finetune/kernels/delta_rule.h). A
// thread has a column, or one value of it.
#include "kernels/cuda/device/common.h"

namespace finetune::kernels::cuda {

__device__ inline i64 position_of(const ConvolutionArguments& a, i64 row) {
  return a.positions != nullptr ? a.positions[row] : row % a.tokens;
}
// The tokens of its sequence after a row.
__device__ inline bool continues(const ConvolutionArguments& a, i64 row, i64 later) {
  return later < a.rows && position_of(a, later) == position_of(a, row) + (later - row);
}

// The sum of taps at a row and a column.
template <class T>
__device__ inline float taps(const ConvolutionArguments& a, i64 row, i64 column) {
  const i64 position = position_of(a, row);
  float y = a.bias == nullptr ? 0.0F : a.bias[column];
  for (int k = 0; k < a.size; ++k) {
    const i64 distance = a.size - 1 - k;
    float x = 0.0F;
    if (distance <= position) {
      x = widen(static_cast<const T*>(a.input)[(row - distance) * a.columns + column]);
    } else if (a.before != nullptr) {
      x = a.before[(position + k) * a.columns + column];
    }
    y += a.weight[column * a.size + k] * x;
  }
  return y;
}

template <class T, int kVariant>
__device__ void short_convolution(const ConvolutionArguments& a) {
  const i64 index = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= a.rows * a.columns) return;
  float y = taps<T>(a, index / a.columns, index % a.columns);
  if (a.has_silu != 0) y = y / (1.0F + expf(-y));
  static_cast<T*>(a.output)[index] = narrow<T>(y);
}

// The gradients of sums of taps, in float32: dy f'(sum).
template <class T, int kVariant>
__device__ void short_convolution_sums(const ConvolutionArguments& a) {
  const i64 index = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= a.rows * a.columns) return;
  float gradient = widen(static_cast<const T*>(a.gradient)[index]);
  if (a.has_silu != 0) {
    const float x = taps<T>(a, index / a.columns, index % a.columns);
    const float s = 1.0F / (1.0F + expf(-x));
    gradient *= s * (1.0F + x * (1.0F - s));
  }
  a.sums[index] = gradient;
}

// The input's gradient, and the sums over a block's rows for weight and bias, [columns, size + 1].
template <class T, int kVariant>
__device__ void short_convolution_backward(const ConvolutionArguments& a) {
  const i64 column = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= a.columns) return;
  float of_taps[kLongestConvolution] = {};
  float of_bias = 0.0F;
  const i64 begin = static_cast<i64>(blockIdx.y) * a.rows_at_once;
  const i64 end = begin + a.rows_at_once < a.rows ? begin + a.rows_at_once : a.rows;
  for (i64 row = begin; row < end; ++row) {
    const i64 position = position_of(a, row);
    const float gradient = a.sums[row * a.columns + column];
    float dx = 0.0F;
#pragma unroll
    for (int k = 0; k < kLongestConvolution; ++k) {
      if (k >= a.size) continue;
      const i64 distance = a.size - 1 - k;
      if (continues(a, row, row + distance)) {
        dx += a.weight[column * a.size + k] * a.sums[(row + distance) * a.columns + column];
      }
      if (distance <= position) {
        of_taps[k] +=
            gradient * widen(static_cast<const T*>(a.input)[(row - distance) * a.columns + column]);
      }
    }
    of_bias += gradient;
    static_cast<T*>(a.output)[row * a.columns + column] = narrow<T>(dx);
  }
  float* const parts = a.parts + (blockIdx.y * a.columns + column) * (a.size + 1);
#pragma unroll
  for (int k = 0; k < kLongestConvolution; ++k) {
    if (k < a.size) parts[k] = of_taps[k];
  }
  parts[a.size] = of_bias;
}

}  // namespace finetune::kernels::cuda
