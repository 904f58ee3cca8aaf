// SPDX-License-Identifier: MIT
// y = LN(s), s = residual + Dropout(product + bias), and the backward pass
//   ds = (dy gamma - mean(dy gamma) - x mean(dy gamma x)) / sqrt(variance + epsilon)
// with x the normalised s, in which each block sums the gradients of gamma (dy x), beta (dy) and
// bias over its rows. A row stays in registers: of a warp (variants 0 to 2: 3, 6 or 8 times four
// values per lane) if it is aligned and not longer, else of a block (variants 3 to 5: 1, 2 or 4
// times).
#include "kernels/cuda/device/common.h"

namespace finetune::kernels::cuda {

// Four columns of a thread's block-wide row.
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

// s is written back for the backward pass.
template <class T, int kVectors>
__device__ inline void normalise_in_block(const AddNormArguments& a) {
  __shared__ float shared[kThreads / kWarp];
  const i64 row = blockIdx.x;
  const RowPosition position(a.dropout, row);
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
      if (a.dropout.is_on) position.factors(a.dropout, static_cast<u32>(first / 4), factors);
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

template <class T, int kVectors>
__device__ inline void differentiate_in_block(const AddNormBackwardArguments& a) {
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
    const RowPosition position(a.dropout, row);
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
        position.factors(a.dropout, static_cast<u32>(first / 4), factors);
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

// A row in a warp: kVectors times four values per lane, aligned. No barrier is needed, and all
// loads of a row are under way at once.
template <int kVectors>
struct WarpRow {
  static constexpr int kValues = 4 * kVectors;

  __device__ static i64 column(int vector) {
    return 4 * (static_cast<i64>(vector) * kWarp + threadIdx.x % kWarp);
  }
  template <class T>
  __device__ static void load(AlignedRow<T, kVectors>& values, const T* row, i64 columns) {
    values.load(row, columns, column);
  }
  __device__ static Four<float> four(const float* row, int vector, i64 columns) {
    Four<float> values = {};
    if (column(vector) < columns) {
      values = *reinterpret_cast<const Four<float>*>(row + column(vector));
    }
    return values;
  }
  template <class T>
  __device__ static void store(T* row, int vector, i64 columns, const Four<T>& values) {
    if (column(vector) < columns) *reinterpret_cast<Four<T>*>(row + column(vector)) = values;
  }
  __device__ static float inverse_deviation(const float* s, float mean, i64 columns,
                                            float epsilon) {
    float squares = 0.0F;
#pragma unroll
    for (int k = 0; k < kValues; ++k) {
      const float centred = s[k] - mean;
      squares += column(k / 4) < columns ? centred * centred : 0.0F;
    }
    return 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(columns) + epsilon);
  }
};

template <class T, int kVectors>
__device__ inline void normalise_in_warp(const AddNormArguments& a) {
  using Row = WarpRow<kVectors>;
  const i64 row = static_cast<i64>(blockIdx.x) * kNormWarps + threadIdx.x / kWarp;
  if (row >= a.rows) return;
  T* const sums = static_cast<T*>(a.sums) + row * a.columns;
  AlignedRow<T, kVectors> of_sums;
  AlignedRow<T, kVectors> of_residual;
  Row::load(of_sums, sums, a.columns);
  float s[Row::kValues];
  if (a.residual != nullptr) {
    Row::load(of_residual, static_cast<const T*>(a.residual) + row * a.columns, a.columns);
    const RowPosition position(a.dropout, row);
    of_sums.widen_to(s);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const Four<float> bias = Row::four(a.bias, v, a.columns);
      float factors[4] = {1.0F, 1.0F, 1.0F, 1.0F};
      if (a.dropout.is_on) {
        position.factors(a.dropout, static_cast<u32>(Row::column(v) / 4), factors);
      }
      Four<T> rounded;  // as the backward pass reads it
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& value = s[4 * v + i];
        value = widen(of_residual.fours[v].at[i]) + (value + bias.at[i]) * factors[i];
        rounded.at[i] = narrow<T>(value);
        value = widen(rounded.at[i]);
      }
      Row::store(sums, v, a.columns, rounded);
    }
  } else {
    of_sums.widen_to(s);
  }
  float sum = 0.0F;
#pragma unroll
  for (int k = 0; k < Row::kValues; ++k) sum += s[k];
  const float mean = warp_sum(sum) / static_cast<float>(a.columns);
  const float inverse = Row::inverse_deviation(s, mean, a.columns, a.epsilon);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const Four<float> gamma = Row::four(a.gamma, v, a.columns);
    const Four<float> beta = Row::four(a.beta, v, a.columns);
    Four<T> y;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      y.at[i] = narrow<T>((s[4 * v + i] - mean) * inverse * gamma.at[i] + beta.at[i]);
    }
    Row::store(static_cast<T*>(a.result) + row * a.columns, v, a.columns, y);
  }
}

// Adds the sums of a block's warps in their order.
template <int kVectors>
__device__ inline void add_warps(const float* own, float* together, float* parts, i64 columns) {
  using Row = WarpRow<kVectors>;
  const int own_warp = static_cast<int>(threadIdx.x / kWarp);
#pragma unroll 1
  for (int warp = 0; warp < kNormWarps; ++warp) {
    if (warp == own_warp) {
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        Four<float>* const shared = reinterpret_cast<Four<float>*>(together + Row::column(v));
        Four<float> total = {};
        if (warp > 0) total = *shared;
#pragma unroll
        for (int i = 0; i < 4; ++i) total.at[i] += own[4 * v + i];
        *shared = total;
        if (warp == kNormWarps - 1) Row::store(parts, v, columns, total);
      }
    }
    __syncthreads();
  }
}

template <class T, int kVectors>
__device__ inline void differentiate_in_warp(const AddNormBackwardArguments& a) {
  using Row = WarpRow<kVectors>;
  constexpr int kValues = Row::kValues;
  alignas(16) __shared__ float together[kWarp * kValues];
  const float count = static_cast<float>(a.columns);
  float of_gamma[kValues] = {};
  float of_beta[kValues] = {};
  float of_bias[kValues] = {};
  const i64 begin = blockIdx.x * a.rows_at_once;
  const i64 end = begin + a.rows_at_once < a.rows ? begin + a.rows_at_once : a.rows;
  for (i64 row = begin + threadIdx.x / kWarp; row < end; row += kNormWarps) {
    T* const sums = static_cast<T*>(a.sums) + row * a.columns;
    T* const gradient = static_cast<T*>(a.gradient) + row * a.columns;
    AlignedRow<T, kVectors> of_sums;
    AlignedRow<T, kVectors> of_gradient;
    Row::load(of_sums, sums, a.columns);
    Row::load(of_gradient, gradient, a.columns);
    const RowPosition position(a.dropout, row);
    float s[kValues];
    float dy[kValues];
    of_sums.widen_to(s);
    of_gradient.widen_to(dy);
    float sum = 0.0F;
#pragma unroll
    for (int k = 0; k < kValues; ++k) sum += s[k];
    const float mean = warp_sum(sum) / count;
    const float inverse = Row::inverse_deviation(s, mean, a.columns, a.epsilon);
    float of_mean = 0.0F;
    float of_deviation = 0.0F;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const Four<float> gamma = Row::four(a.gamma, v, a.columns);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int k = 4 * v + i;
        s[k] = (s[k] - mean) * inverse;
        of_gamma[k] += dy[k] * s[k];
        of_beta[k] += dy[k];
        dy[k] *= gamma.at[i];
        of_mean += dy[k];
        of_deviation += dy[k] * s[k];
      }
    }
    of_mean = warp_sum(of_mean) / count;
    of_deviation = warp_sum(of_deviation) / count;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      Four<T> of_sum;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int k = 4 * v + i;
        dy[k] = inverse * (dy[k] - of_mean - s[k] * of_deviation);
        of_sum.at[i] = narrow<T>(dy[k]);
      }
      Row::store(gradient, v, a.columns, of_sum);
      if (a.dropout.is_on) {
        float factors[4];
        position.factors(a.dropout, static_cast<u32>(Row::column(v) / 4), factors);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          dy[4 * v + i] *= factors[i];
          of_sum.at[i] = narrow<T>(dy[4 * v + i]);
        }
        Row::store(sums, v, a.columns, of_sum);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) of_bias[4 * v + i] += dy[4 * v + i];
    }
  }
  float* const parts = a.parts + static_cast<i64>(blockIdx.x) * a.columns;
  const i64 values = static_cast<i64>(gridDim.x) * a.columns;  // of all blocks
  add_warps<kVectors>(of_gamma, together, parts, a.columns);
  add_warps<kVectors>(of_beta, together, parts + values, a.columns);
  add_warps<kVectors>(of_bias, together, parts + 2 * values, a.columns);
}

template <class T>
constexpr int kWarpShapes = sizeof(T) == 4 ? kWideNormWarpShapes : kNormWarpShapes;

template <class T, int kVariant>
__device__ void add_norm(const AddNormArguments& a) {
  if constexpr (kVariant < kWarpShapes<T>) {
    normalise_in_warp<T, kNormWarpColumns[kVariant] / (4 * kWarp)>(a);
  } else if constexpr (kVariant >= kNormWarpShapes) {
    normalise_in_block<T, 1 << (kVariant - kNormWarpShapes)>(a);
  }
}

template <class T, int kVariant>
__device__ void add_norm_backward(const AddNormBackwardArguments& a) {
  if constexpr (kVariant < kWarpShapes<T>) {
    differentiate_in_warp<T, kNormWarpColumns[kVariant] / (4 * kWarp)>(a);
  } else if constexpr (kVariant >= kNormWarpShapes) {
    differentiate_in_block<T, 1 << (kVariant - kNormWarpShapes)>(a);
  }
}

}  // namespace finetune::kernels::cuda
