// SPDX-License-Identifier: MIT
// y = x / sqrt(mean(x^2) + epsilon) * f, with f = weight or 1 + weight (Zhang and Sennrich 2019). A
// row stays in the registers of a warp (variants 0 and 1: once or twice four values per thread) or
// of a block (variants 2 to 5: 1, 2, 4 or 8 times; few registers, so that many blocks are resident
// and hide each other's waiting). Rows x are of y's type, or float32 (the second six variants), and
// may be sums of two, which are stored too.
#include "kernels/cuda/device/common.h"

namespace finetune::kernels::cuda {

template <class T, bool kIsWide>
struct InputOf {
  using Type = T;
};
template <class T>
struct InputOf<T, true> {
  using Type = float;
};

template <int kVariant>
struct RowsOfBlock {
  static constexpr int kShape = kVariant % kRmsNormShapes;
  static constexpr bool kIsWarp = kShape < kRmsNormWarpShapes;
  static constexpr int kVectors = kIsWarp ? 1 << kShape : 1 << (kShape - kRmsNormWarpShapes);
  static constexpr int kRows = kIsWarp ? kThreads / kWarp : 1;

  // Which of the rows at once, and position in it.
  __device__ static int row() { return kIsWarp ? static_cast<int>(threadIdx.x) / kWarp : 0; }
  __device__ static i64 column(int vector) {
    const u32 lanes = kIsWarp ? kWarp : blockDim.x;
    const u32 lane = kIsWarp ? threadIdx.x % kWarp : threadIdx.x;
    return 4 * (static_cast<i64>(vector) * lanes + lane);
  }
  __device__ static float sum(float x, float* shared) {
    if constexpr (kIsWarp) return warp_sum(x);
    return block_sum(x, shared);
  }
};

__device__ inline float rms_factor(float weight, int adds_one) {
  return adds_one != 0 ? 1.0F + weight : weight;
}

template <class T, int kVariant>
__device__ void rms_norm(const RmsNormArguments& a) {
  using Rows = RowsOfBlock<kVariant>;
  using Input = typename InputOf<T, (kVariant >= kRmsNormShapes)>::Type;
  __shared__ float shared[kThreads / kWarp];
  const i64 row = static_cast<i64>(blockIdx.x) * Rows::kRows + Rows::row();
  if (row >= a.rows) return;  // a whole warp
  float x[4 * Rows::kVectors];
  float squares = 0.0F;
#pragma unroll
  for (int v = 0; v < Rows::kVectors; ++v) {
    load4(static_cast<const Input*>(a.input) + row * a.columns, Rows::column(v), a.columns,
          a.is_aligned, x + 4 * v);
    if (a.branch != nullptr) {
      float branch[4];
      load4(static_cast<const T*>(a.branch) + row * a.columns, Rows::column(v), a.columns,
            a.is_aligned, branch);
#pragma unroll
      for (int i = 0; i < 4; ++i) x[4 * v + i] = widen(narrow<Input>(x[4 * v + i] + branch[i]));
      store4(static_cast<Input*>(a.sum) + row * a.columns, Rows::column(v), a.columns, a.is_aligned,
             x + 4 * v);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) squares += x[4 * v + i] * x[4 * v + i];
  }
  const float mean = Rows::sum(squares, shared) / static_cast<float>(a.columns);
  const float inverse = 1.0F / sqrtf(mean + a.epsilon);
#pragma unroll
  for (int v = 0; v < Rows::kVectors; ++v) {
    float weight[4];
    load4(a.weight, Rows::column(v), a.columns, a.is_aligned, weight);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[4 * v + i] *= inverse * rms_factor(weight[i], a.adds_one);
    store4(static_cast<T*>(a.output) + row * a.columns, Rows::column(v), a.columns, a.is_aligned,
           x + 4 * v);
  }
}

// With u = x / rms and g = dy f: dx = (g - u mean(g u)) / rms. Each block sums the gradient of the
// weight, dy u, over its rows: each warp over its own, then the warps in their order.
template <class T, int kVariant>
__device__ void rms_norm_backward(const RmsNormBackwardArguments& a) {
  using Rows = RowsOfBlock<kVariant>;
  using Input = typename InputOf<T, (kVariant >= kRmsNormShapes)>::Type;
  constexpr int kValues = 4 * Rows::kVectors;
  __shared__ float shared[kThreads / kWarp];
  __shared__ float of_warps[Rows::kIsWarp ? Rows::kRows * kWarp * kValues : 1];
  const float count = static_cast<float>(a.columns);
  float of_weight[kValues] = {};
  const i64 begin = blockIdx.x * a.rows_at_once;
  const i64 end = begin + a.rows_at_once < a.rows ? begin + a.rows_at_once : a.rows;
  for (i64 row = begin + Rows::row(); row < end; row += Rows::kRows) {
    float x[kValues];
    float dy[kValues];
    float squares = 0.0F;
#pragma unroll
    for (int v = 0; v < Rows::kVectors; ++v) {
      load4(static_cast<const Input*>(a.input) + row * a.columns, Rows::column(v), a.columns,
            a.is_aligned, x + 4 * v);
      load4(static_cast<const T*>(a.gradient) + row * a.columns, Rows::column(v), a.columns,
            a.is_aligned, dy + 4 * v);
#pragma unroll
      for (int i = 0; i < 4; ++i) squares += x[4 * v + i] * x[4 * v + i];
    }
    const float inverse = 1.0F / sqrtf(Rows::sum(squares, shared) / count + a.epsilon);
    float along = 0.0F;
#pragma unroll
    for (int v = 0; v < Rows::kVectors; ++v) {
      float weight[4];
      load4(a.weight, Rows::column(v), a.columns, a.is_aligned, weight);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int k = 4 * v + i;
        x[k] *= inverse;
        of_weight[k] += dy[k] * x[k];
        // After the row's end the gradient is 0.
        dy[k] *= rms_factor(weight[i], a.adds_one);
        along += dy[k] * x[k];
      }
    }
    along = Rows::sum(along, shared) / count;
#pragma unroll
    for (int v = 0; v < Rows::kVectors; ++v) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int k = 4 * v + i;
        dy[k] = inverse * (dy[k] - x[k] * along);
      }
      if (a.adds != 0) {
        float sum[4];
        load4(static_cast<const Input*>(a.of_input) + row * a.columns, Rows::column(v), a.columns,
              a.is_aligned, sum);
#pragma unroll
        for (int i = 0; i < 4; ++i) dy[4 * v + i] += sum[i];
      }
      store4(static_cast<Input*>(a.of_input) + row * a.columns, Rows::column(v), a.columns,
             a.is_aligned, dy + 4 * v);
      if (a.rounded != nullptr) {
        store4(static_cast<T*>(a.rounded) + row * a.columns, Rows::column(v), a.columns,
               a.is_aligned, dy + 4 * v);
      }
    }
  }
  float* const parts = a.parts + static_cast<i64>(blockIdx.x) * a.columns;
  if constexpr (!Rows::kIsWarp) {
#pragma unroll
    for (int v = 0; v < Rows::kVectors; ++v) {
      store4(parts, Rows::column(v), a.columns, a.is_aligned, of_weight + 4 * v);
    }
    return;
  }
  constexpr int kColumns = kWarp * kValues;
#pragma unroll
  for (int v = 0; v < Rows::kVectors; ++v) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      of_warps[Rows::row() * kColumns + Rows::column(v) + i] = of_weight[4 * v + i];
    }
  }
  __syncthreads();
  for (i64 column = threadIdx.x; column < a.columns; column += blockDim.x) {
    float sum = 0.0F;
    for (int warp = 0; warp < Rows::kRows; ++warp) sum += of_warps[warp * kColumns + column];
    parts[column] = sum;
  }
}

}  // namespace finetune::kernels::cuda
