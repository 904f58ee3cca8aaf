// SPDX-License-Identifier: MIT
// Sums over rows in two stages and one order: partial_sums() gives a part for each block of rows,
// column_sums() adds the parts of many parameters to their gradients.
#include "kernels/cuda/device/lists.h"
#include "kernels/cuda/device/rounding.h"

namespace finetune::kernels::cuda {

// Threads own four columns of a matrix and go down some rows.
template <class T, int kVariant>
__device__ void partial_sums(const PartialSumsArguments& a) {
  const int matrix = static_cast<int>(blockIdx.x) / a.blocks_of_each;
  const int block = static_cast<int>(blockIdx.x) % a.blocks_of_each;
  const auto* rows = static_cast<const T*>(a.rows[matrix]);
  const i64 first = 4 * (static_cast<i64>(block) * blockDim.x + threadIdx.x);
  if (first >= a.columns) return;
  const i64 begin = blockIdx.y * a.rows_at_once;
  const i64 end = begin + a.rows_at_once < a.count ? begin + a.rows_at_once : a.count;
  float sums[4] = {};
  for (i64 row = begin; row < end; ++row) {
    float x[4];
    load4(rows + row * a.columns, first, a.columns, a.is_aligned, x);
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] += x[i];
  }
  store4(a.parts + (matrix * a.blocks + blockIdx.y) * a.columns, first, a.columns, a.is_aligned,
         sums);
}

__device__ inline void add_sum(const ListedSums& a, i64 column, float sum) {
  if (!a.is_rounded) {
    static_cast<float*>(a.target)[column] += sum;
    return;
  }
  u16& target = static_cast<u16*>(a.target)[column];
  const u32 number = rounding_number(static_cast<u64>(column), a.rounding_key);
  target = round_with(widen(bfloat16{target}) + sum, number);
}

// A warp's lanes take columns next to each other, the warps of a block every eighth part.
template <class T, int kVariant>
__device__ void column_sums(const ColumnSumsArguments& list) {
  constexpr int kGroups = kThreads / kWarp;
  __shared__ float shared[kGroups][kWarp];
  const ListedSums& a = entry_of(list.sums, list.count, blockIdx.x);
  const u32 lane = threadIdx.x % kWarp;
  const u32 group = threadIdx.x / kWarp;
  const i64 column = (static_cast<i64>(blockIdx.x) - a.first_block) * kWarp + lane;
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
  add_sum(a, column, sum);
}

}  // namespace finetune::kernels::cuda
