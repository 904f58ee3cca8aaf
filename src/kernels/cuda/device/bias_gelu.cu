// SPDX-License-Identifier: MIT
// The exact GELU of input + bias (variant 0) or its tanh form (variant 1), and its derivative. A
// thread handles eight columns of a number of rows.
#include "kernels/cuda/device/activations.h"

namespace finetune::kernels::cuda {

constexpr int kRowsTogether = 4;  // whose loads are under way before the first is used

// The rows and columns of a thread.
struct RowsOfThread {
  i64 first;  // column
  i64 begin, end;

  __device__ explicit RowsOfThread(const BiasGeluArguments& a)
      : first(8 * (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x)),
        begin(blockIdx.y * a.rows_at_once),
        end(begin + a.rows_at_once < a.rows ? begin + a.rows_at_once : a.rows) {}
};

// Replaces x by f(x + bias) or, where gradients are given, by gradient * f'(x + bias), and adds
// these to the sums.
template <class T, int kFunction, bool kBack>
__device__ inline void activate_eight(float* x, const float* gradient, const float* bias,
                                      float* sums) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const Activated f = activate<kFunction, T>(x[i] + bias[i]);
    x[i] = kBack ? gradient[i] * f.slope : f.value;
    if (kBack) sums[i] += x[i];
  }
}

template <class T, int kFunction, bool kBack>
__device__ inline void activate_aligned(const BiasGeluArguments& a, const RowsOfThread& rows,
                                        const float* bias, float* sums) {
  const T* const input = static_cast<const T*>(a.input) + rows.first;
  T* const output = static_cast<T*>(a.output) + rows.first;
  for (i64 row = rows.begin; row < rows.end; row += kRowsTogether) {
    Eight<T> values[kRowsTogether];
    Eight<T> gradients[kRowsTogether];
#pragma unroll
    for (int r = 0; r < kRowsTogether; ++r) {
      // A branch would make each load wait for the last.
      const i64 own = row + r < rows.end ? row + r : rows.end - 1;
      values[r].load(input + own * a.columns);
      if (kBack) gradients[r].load(output + own * a.columns);
    }
#pragma unroll
    for (int r = 0; r < kRowsTogether; ++r) {
      if (row + r >= rows.end) break;
      float x[8];
      float gradient[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        x[i] = widen(values[r].at(i));
        if (kBack) gradient[i] = widen(gradients[r].at(i));
      }
      activate_eight<T, kFunction, kBack>(x, gradient, bias, sums);
#pragma unroll
      for (int i = 0; i < 8; ++i) values[r].at(i) = narrow<T>(x[i]);
      values[r].store(output + (row + r) * a.columns);
    }
  }
}

template <class T, int kFunction, bool kBack>
__device__ inline void activate_unaligned(const BiasGeluArguments& a, const RowsOfThread& rows,
                                          const float* bias, float* sums) {
  for (i64 row = rows.begin; row < rows.end; ++row) {
    T* const output = static_cast<T*>(a.output) + row * a.columns;
    float x[8];
    float gradient[8];
    load8(static_cast<const T*>(a.input) + row * a.columns, rows.first, a.columns, false, x);
    if (kBack) load8(output, rows.first, a.columns, false, gradient);
    activate_eight<T, kFunction, kBack>(x, gradient, bias, sums);
    store8(output, rows.first, a.columns, false, x);
  }
}

template <class T, int kFunction, bool kBack>
__device__ inline void activate_rows(const BiasGeluArguments& a) {
  const RowsOfThread rows(a);
  if (rows.first >= a.columns) return;
  float bias[8];
  float sums[8] = {};
  load8(a.bias, rows.first, a.columns, a.is_aligned, bias);
  if (a.is_aligned != 0) {
    activate_aligned<T, kFunction, kBack>(a, rows, bias, sums);
  } else {
    activate_unaligned<T, kFunction, kBack>(a, rows, bias, sums);
  }
  if (kBack) {
    store8(a.parts + blockIdx.y * a.columns, rows.first, a.columns, a.is_aligned, sums);
  }
}

template <class T, int kVariant>
__device__ void bias_gelu(const BiasGeluArguments& a) {
  activate_rows<T, kVariant == 0 ? kGelu : kTanhGelu, false>(a);
}

template <class T, int kVariant>
__device__ void bias_gelu_backward(const BiasGeluArguments& a) {
  activate_rows<T, kVariant == 0 ? kGelu : kTanhGelu, true>(a);
}

}  // namespace finetune::kernels::cuda
