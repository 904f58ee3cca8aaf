// SPDX-License-Identifier: MIT
// The sum of squares of all values of a list of tensors, in two stages and a fixed order: a sum for
// each block, then the sum of these by one block.
#include "kernels/cuda/device/lists.h"

namespace finetune::kernels::cuda {

// Sums by a tree; thread 0 gets the result.
__device__ inline double tree_sum(double x, double* shared) {
  shared[threadIdx.x] = x;
  __syncthreads();
  for (u32 half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  return shared[0];
}

template <class T, int kVariant>
__device__ void sum_of_squares(const SumOfSquaresArguments& a) {
  __shared__ double shared[kThreads];
  const ListedTensor& tensor = entry_of(a.tensors, a.count, blockIdx.x);
  const T* const values = static_cast<const T*>(tensor.values);
  const i64 begin = (blockIdx.x - tensor.first_block) * kListedValues;
  // Sums eight squares in float32: that is as accurate as gradients are.
  float some = 0.0F;
  for (int step = 0; step < kListedValues; step += 4 * kThreads) {
    float x[4];
    const i64 first = begin + step + 4 * static_cast<i64>(threadIdx.x);
    load4(values, first, tensor.count, false, x);
#pragma unroll
    for (int i = 0; i < 4; ++i) some += x[i] * x[i];
  }
  const double sum = tree_sum(static_cast<double>(some), shared);
  if (threadIdx.x == 0) a.parts[blockIdx.x] = sum;
}

template <class T, int kVariant>
__device__ void sum_of_parts(const SumOfSquaresArguments& a) {
  __shared__ double shared[kThreads];
  double sum = 0.0;
  for (int i = static_cast<int>(threadIdx.x); i < a.blocks; i += kThreads) sum += a.parts[i];
  sum = tree_sum(sum, shared);
  if (threadIdx.x == 0) *a.result = sum;
}

}  // namespace finetune::kernels::cuda
