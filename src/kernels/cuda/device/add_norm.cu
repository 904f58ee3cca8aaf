// SPDX-License-Identifier: MIT
// y = LN(s), s = residual + Dropout(product + bias). One block of threads per row; the row stays in
// registers: 1, 2 or 4 (variants 0 to 2) times four values per thread.
#include "kernels/cuda/device/common.h"

namespace finetune::kernels::cuda {

__device__ inline i64 first_column(int vector) {
  return 4 * (static_cast<i64>(vector) * blockDim.x + threadIdx.x);
}

// Returns a thread's part of the sum of (x - mean)^2; values after the row's end do not count.
template <int kVectors>
__device__ float squares_around(const float* values, float mean, i64 columns) {
  float squares = 0.0F;
#pragma unroll
  for (int k = 0; k < 4 * kVectors; ++k) {
    const float centred = values[k] - mean;
    squares += first_column(k / 4) + k % 4 < columns ? centred * centred : 0.0F;
  }
  return squares;
}

// y = (s - mean) / sqrt(variance + epsilon) * gamma + beta; s is written back for the backward
// pass.
template <class T, int kVariant>
__device__ void add_norm(const AddNormArguments& a) {
  constexpr int kVectors = 1 << kVariant;
  __shared__ float shared[kThreads / kWarp];
  const i64 row = blockIdx.x;
  T* const sums = static_cast<T*>(a.sums) + row * a.columns;
  float s[4 * kVectors];
  float sum = 0.0F;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const i64 first = first_column(v);
    load4(sums, first, a.columns, a.is_aligned, s + 4 * v);
    if (a.residual != nullptr) {
      float bias[4];
      float residual[4];
      float factors[4] = {1.0F, 1.0F, 1.0F, 1.0F};
      load4(a.bias, first, a.columns, a.is_aligned, bias);
      load4(static_cast<const T*>(a.residual) + row * a.columns, first, a.columns, a.is_aligned,
            residual);
      if (a.dropout.is_on) row_factors(a.dropout, row, static_cast<u32>(first / 4), factors);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[4 * v + i] = residual[i] + (s[4 * v + i] + bias[i]) * factors[i];
        s[4 * v + i] = widen(narrow<T>(s[4 * v + i]));  // rounded as the backward pass reads it
      }
      store4(sums, first, a.columns, a.is_aligned, s + 4 * v);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) sum += s[4 * v + i];
  }
  const float count = static_cast<float>(a.columns);
  const float mean = block_sum(sum, shared) / count;
  const float variance = block_sum(squares_around<kVectors>(s, mean, a.columns), shared) / count;
  const float inverse = 1.0F / sqrtf(variance + a.epsilon);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const i64 first = first_column(v);
    float gamma[4];
    float beta[4];
    load4(a.gamma, first, a.columns, a.is_aligned, gamma);
    load4(a.beta, first, a.columns, a.is_aligned, beta);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      s[4 * v + i] = (s[4 * v + i] - mean) * inverse * gamma[i] + beta[i];
    }
    store4(static_cast<T*>(a.result) + row * a.columns, first, a.columns, a.is_aligned, s + 4 * v);
  }
}

// ds = (dy gamma - mean(dy gamma) - x mean(dy gamma x)) / sqrt(variance + epsilon), with x the
// normalised s. Each block sums the gradients of gamma (dy x), beta (dy) and bias over its rows.
template <class T, int kVariant>
__device__ void add_norm_backward(const AddNormBackwardArguments& a) {
  constexpr int kVectors = 1 << kVariant;
  __shared__ float shared[kThreads / kWarp];
  const float count = static_cast<float>(a.columns);
  float of_gamma[4 * kVectors] = {};
  float of_beta[4 * kVectors] = {};
  float of_bias[4 * kVectors] = {};
  const i64 begin = blockIdx.x * a.rows_at_once;
  const i64 end = begin + a.rows_at_once < a.rows ? begin + a.rows_at_once : a.rows;
  for (i64 row = begin; row < end; ++row) {
    T* const sums = static_cast<T*>(a.sums) + row * a.columns;
    T* const gradient = static_cast<T*>(a.gradient) + row * a.columns;
    float s[4 * kVectors];
    float dy[4 * kVectors];
    float sum = 0.0F;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      load4(sums, first_column(v), a.columns, a.is_aligned, s + 4 * v);
      load4(gradient, first_column(v), a.columns, a.is_aligned, dy + 4 * v);
#pragma unroll
      for (int i = 0; i < 4; ++i) sum += s[4 * v + i];
    }
    const float mean = block_sum(sum, shared) / count;
    const float variance = block_sum(squares_around<kVectors>(s, mean, a.columns), shared) / count;
    const float inverse = 1.0F / sqrtf(variance + a.epsilon);
    float of_mean = 0.0F;
    float of_deviation = 0.0F;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      float gamma[4];
      load4(a.gamma, first_column(v), a.columns, a.is_aligned, gamma);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int k = 4 * v + i;
        s[k] = (s[k] - mean) * inverse;  // no NaN after the row's end: gamma is 0 there
        of_gamma[k] += dy[k] * s[k];
        of_beta[k] += dy[k];
        dy[k] *= gamma[i];
        of_mean += dy[k];
        of_deviation += dy[k] * s[k];
      }
    }
    of_mean = block_sum(of_mean, shared) / count;
    of_deviation = block_sum(of_deviation, shared) / count;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const i64 first = first_column(v);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int k = 4 * v + i;
        dy[k] = inverse * (dy[k] - of_mean - s[k] * of_deviation);
      }
      store4(gradient, first, a.columns, a.is_aligned, dy + 4 * v);
      if (a.dropout.is_on) {
        float factors[4];
        row_factors(a.dropout, row, static_cast<u32>(first / 4), factors);
#pragma unroll
        for (int i = 0; i < 4; ++i) dy[4 * v + i] *= factors[i];
        store4(sums, first, a.columns, a.is_aligned, dy + 4 * v);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) of_bias[4 * v + i] += dy[4 * v + i];
    }
  }
  float* const parts = a.parts + static_cast<i64>(blockIdx.x) * a.columns;
  const i64 values = static_cast<i64>(gridDim.x) * a.columns;  // of all blocks
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const i64 first = first_column(v);
    store4(parts, first, a.columns, a.is_aligned, of_gamma + 4 * v);
    store4(parts + values, first, a.columns, a.is_aligned, of_beta + 4 * v);
    store4(parts + 2 * values, first, a.columns, a.is_aligned, of_bias + 4 * v);
  }
}

}  // namespace finetune::kernels::cuda
