// SPDX-License-Identifier: MIT
// The second stage of sums over rows, in a fixed order. The lanes of a warp sum neighbouring
// columns; each warp of a block sums every eighth part.
#include "kernels/cuda/device/common.h"

namespace finetune::kernels::cuda {

template <class T, int kVariant>
__device__ void column_sums(const ColumnSumsArguments& a) {
  constexpr int kGroups = kThreads / kWarp;
  __shared__ float shared[kGroups][kWarp];
  const u32 lane = threadIdx.x % kWarp;
  const u32 group = threadIdx.x / kWarp;
  const i64 column = static_cast<i64>(blockIdx.x) * kWarp + lane;
  float sum = 0.0F;
  if (column < a.columns) {
    for (i64 part = group; part < a.count; part += kGroups) {
      sum += a.parts[part * a.columns + column];
    }
  }
  shared[group][lane] = sum;
  __syncthreads();
  if (group != 0 || column >= a.columns) return;
  for (int other = 1; other < kGroups; ++other) sum += shared[other][lane];
  a.sums[column] = sum;
}

}  // namespace finetune::kernels::cuda
