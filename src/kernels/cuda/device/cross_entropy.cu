// SPDX-License-Identifier: MIT
// The cross entropy of a row of logits z, and its gradient in place; one block per row. With e the
// label smoothing and V columns: loss = log sum exp(z) - (1 - e) z[label] - e / V sum(z), dloss/dz
// = softmax(z) - e / V - (1 - e) [c = label].
#include "kernels/cuda/device/common.h"

namespace finetune::kernels::cuda {

// Sums the values of all threads by a tree of fixed shape: each run has the same bits.
__device__ inline double block_sum_of_doubles(double x, double* shared) {
  shared[threadIdx.x] = x;
  __syncthreads();
  for (u32 half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  const double sum = shared[0];
  __syncthreads();
  return sum;
}

// The sum of exp(x - largest) over what a thread has seen.
struct Exponentials {
  float largest = float_of(0xFF800000U);  // NaN once a value is
  float sum = 0.0F;

  // Adds the values of four columns from `first` on.
  __device__ void add(const float* x, i64 first, i64 columns) {
    float top = largest;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (first + i < columns && (x[i] > top || x[i] != x[i])) top = x[i];
    }
    const float from = shift(top);
    if (top != largest) sum *= expf(largest - from);
    largest = top;
#pragma unroll
    for (int i = 0; i < 4; ++i) sum += first + i < columns ? expf(x[i] - from) : 0.0F;
  }
  // Where all values are -infinity, their exponentials are 0.
  __device__ static float shift(float top) { return top == float_of(0xFF800000U) ? 0.0F : top; }
};

// T: of the gradient.
template <class T, int kVariant>
__device__ void cross_entropy(const CrossEntropyArguments& a) {
  __shared__ float shared[kThreads / kWarp];
  __shared__ double sums[kThreads];
  const i64 row = blockIdx.x;
  const float* const logits = a.logits + row * a.columns;
  const i64 label = a.labels[row];
  const i64 step = 4 * static_cast<i64>(blockDim.x);
  Exponentials own;
  double plain = 0.0;
  for (i64 first = 4 * static_cast<i64>(threadIdx.x); first < a.columns; first += step) {
    float x[4];
    load4(logits, first, a.columns, a.is_aligned, x);
    own.add(x, first, a.columns);
    if (a.smoothing != 0.0) {
#pragma unroll
      for (int i = 0; i < 4; ++i) plain += static_cast<double>(x[i]);  // 0 after the row's end
    }
  }
  const float largest = block_largest(own.largest, shared);
  const float from = Exponentials::shift(largest);
  const float scaled = own.sum == 0.0F ? 0.0F : own.sum * expf(own.largest - from);
  const double total = block_sum_of_doubles(static_cast<double>(scaled), sums);
  if (a.smoothing != 0.0) plain = block_sum_of_doubles(plain, sums);
  const double on_each = a.smoothing / static_cast<double>(a.columns);
  if (threadIdx.x == 0) {
    const double of_label = static_cast<double>(logits[label]) * (1.0 - a.smoothing);
    a.losses[row] = static_cast<double>(from) + log(total) - of_label - plain * on_each;
  }
  if (a.with_gradient == 0) return;
  __syncthreads();  // the label's logit is read before it is overwritten
  T* const gradient = static_cast<T*>(a.gradient) + row * a.columns;
  const float scale = static_cast<float>(a.gradient_scale / total);
  const float each = static_cast<float>(a.gradient_scale * on_each);
  const float of_label = static_cast<float>(a.gradient_scale * (1.0 - a.smoothing));
  for (i64 first = 4 * static_cast<i64>(threadIdx.x); first < a.columns; first += step) {
    float x[4];
    load4(logits, first, a.columns, a.is_aligned, x);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[i] = expf(x[i] - from) * scale - each;
      if (first + i == label) x[i] -= of_label;
    }
    store4(gradient, first, a.columns, a.is_aligned, x);
    if (a.wide != nullptr) store4(a.wide + row * a.columns, first, a.columns, a.is_aligned, x);
  }
}

}  // namespace finetune::kernels::cuda
