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

// A thread's values at a time, whose loads are under way together: four of each of four parts.
constexpr int kParts = 4;
constexpr int kLogits = 4 * kParts;

struct RowOfLogits {
  const float* logits;
  const float* bias;  // or null
  i64 columns;
  int is_aligned;

  __device__ i64 first(i64 begin, int part) const {
    return begin + 4 * (static_cast<i64>(part) * blockDim.x + threadIdx.x);
  }
  // Columns from `begin` on of the whole block; `outside` after the row's end.
  __device__ void load(i64 begin, float outside, float* x) const {
    if (is_aligned == 0) {
      load_unaligned(begin, outside, x);
      return;
    }
    const auto column = [this, begin](int part) { return first(begin, part); };
    AlignedRow<float, kParts> values;
    values.load(logits, columns, column);
    if (bias != nullptr) {
      AlignedRow<float, kParts> biases;
      biases.load(bias, columns, column);
#pragma unroll
      for (int k = 0; k < kLogits; ++k)
        values.fours[k / 4].at[k % 4] += biases.fours[k / 4].at[k % 4];
    }
#pragma unroll
    for (int k = 0; k < kLogits; ++k) {
      x[k] = column(k / 4) < columns ? values.fours[k / 4].at[k % 4] : outside;
    }
  }

 private:
  __device__ void load_unaligned(i64 begin, float outside, float* x) const {
    for (int k = 0; k < kLogits; ++k) {
      const i64 column = first(begin, k / 4) + k % 4;
      x[k] = outside;
      if (column < columns) x[k] = logits[column] + (bias == nullptr ? 0.0F : bias[column]);
    }
  }
};

// The sum of exp(x - largest) over what a thread has seen.
struct Exponentials {
  float largest = lowest();  // NaN once a value is
  float sum = 0.0F;

  __device__ void add(const float* x) {
    float top = largest;
#pragma unroll
    for (int k = 0; k < kLogits; ++k) {
      if (x[k] > top || x[k] != x[k]) top = x[k];
    }
    const float from = shift(top);
    if (top != largest) sum *= expf(largest - from);
    largest = top;
#pragma unroll
    for (int k = 0; k < kLogits; ++k) sum += expf(x[k] - from);
  }
  // Where all values are -infinity, their exponentials are 0.
  __device__ static float shift(float top) { return top == lowest() ? 0.0F : top; }
};

// T: of the gradient.
template <class T, int kVariant>
__device__ void cross_entropy(const CrossEntropyArguments& a) {
  __shared__ float shared[kThreads / kWarp];
  __shared__ double sums[kThreads];
  const i64 row = blockIdx.x;
  const RowOfLogits logits = {a.logits + row * a.columns, a.bias, a.columns, a.is_aligned};
  const i64 label = a.labels[row];
  const i64 step = kLogits * static_cast<i64>(blockDim.x);
  Exponentials own;
  double plain = 0.0;
  for (i64 begin = 0; begin < a.columns; begin += step) {
    float x[kLogits];
    logits.load(begin, lowest(), x);
    own.add(x);
    if (a.smoothing != 0.0) {
      logits.load(begin, 0.0F, x);
#pragma unroll
      for (int k = 0; k < kLogits; ++k) plain += static_cast<double>(x[k]);
    }
  }
  const float largest = block_largest(own.largest, shared);
  const float from = Exponentials::shift(largest);
  const float scaled = own.sum == 0.0F ? 0.0F : own.sum * expf(own.largest - from);
  const double total = block_sum_of_doubles(static_cast<double>(scaled), sums);
  if (a.smoothing != 0.0) plain = block_sum_of_doubles(plain, sums);
  const double on_each = a.smoothing / static_cast<double>(a.columns);
  if (threadIdx.x == 0) {
    const float own_logit = logits.logits[label] + (a.bias == nullptr ? 0.0F : a.bias[label]);
    const double of_label = static_cast<double>(own_logit) * (1.0 - a.smoothing);
    a.losses[row] = static_cast<double>(from) + log(total) - of_label - plain * on_each;
  }
  if (a.with_gradient == 0) return;
  __syncthreads();  // the label's logit is read before it is overwritten
  T* const gradient = static_cast<T*>(a.gradient) + row * a.columns;
  const float scale = static_cast<float>(a.gradient_scale / total);
  const float each = static_cast<float>(a.gradient_scale * on_each);
  const float of_label = static_cast<float>(a.gradient_scale * (1.0 - a.smoothing));
  for (i64 begin = 0; begin < a.columns; begin += step) {
    float x[kLogits];
    logits.load(begin, 0.0F, x);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const i64 first = logits.first(begin, part);
      float* const some = x + 4 * part;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        some[i] = expf(some[i] - from) * scale - each;
        if (first + i == label) some[i] -= of_label;
      }
      if (first >= a.columns) continue;
      store4(gradient, first, a.columns, a.is_aligned, some);
      if (a.wide != nullptr) {
        store4(a.wide + row * a.columns, first, a.columns, a.is_aligned, some);
      }
    }
  }
}

}  // namespace finetune::kernels::cuda
