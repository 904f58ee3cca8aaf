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

template <class T, int kVariant>
__device__ void cross_entropy(const CrossEntropyArguments& a) {
  __shared__ float shared[kThreads / kWarp];
  __shared__ double sums[kThreads];
  const i64 row = blockIdx.x;
  float* const logits = a.logits + row * a.columns;
  const i64 label = a.labels[row];
  float largest = float_of(0xFF800000U);
  for (i64 c = threadIdx.x; c < a.columns; c += blockDim.x) {
    const float x = logits[c];
    largest = x > largest || x != x ? x : largest;
  }
  largest = block_largest(largest, shared);
  float exponentials = 0.0F;
  double plain = 0.0;
  for (i64 c = threadIdx.x; c < a.columns; c += blockDim.x) {
    const float x = logits[c];
    exponentials += expf(x - largest);
    if (a.smoothing != 0.0) plain += static_cast<double>(x);
  }
  const double total = block_sum_of_doubles(static_cast<double>(exponentials), sums);
  if (a.smoothing != 0.0) plain = block_sum_of_doubles(plain, sums);
  const double on_each = a.smoothing / static_cast<double>(a.columns);
  if (threadIdx.x == 0) {
    const double own = static_cast<double>(logits[label]) * (1.0 - a.smoothing);
    a.losses[row] = static_cast<double>(largest) + log(total) - own - plain * on_each;
  }
  if (!a.with_gradient) return;
  __syncthreads();  // the label's logit is read before it is overwritten
  const float scale = static_cast<float>(a.gradient_scale / total);
  const float each = static_cast<float>(a.gradient_scale * on_each);
  const float of_label = static_cast<float>(a.gradient_scale * (1.0 - a.smoothing));
  for (i64 c = threadIdx.x; c < a.columns; c += blockDim.x) {
    const float share = expf(logits[c] - largest) * scale - each;
    logits[c] = c == label ? share - of_label : share;
  }
}

}  // namespace finetune::kernels::cuda
