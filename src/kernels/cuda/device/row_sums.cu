// SPDX-License-Identifier: MIT
// target[index] += row. Indices are sorted: the block at which a run of equal ones begins adds its
// rows, in their order.
#include "kernels/cuda/device/rounding.h"

namespace finetune::kernels::cuda {

constexpr int kExactSums = 0;    // into float32
constexpr int kRoundedSums = 1;  // into bfloat16, stochastically

__device__ inline bool begins_run(const RowSumsArguments& a, i64 i) {
  return a.indices[i] != a.skipped && (i == 0 || a.indices[i - 1] != a.indices[i]);
}

// Runs before this one, whose rows have the numbers before its: the CPU numbers the sums of each
// index one after the other.
__device__ inline i64 runs_before(const RowSumsArguments& a, i64 begin, float* shared) {
  float count = 0.0F;  // exact below 2^24 rows
  for (i64 i = threadIdx.x; i < begin; i += blockDim.x) count += begins_run(a, i) ? 1.0F : 0.0F;
  return static_cast<i64>(block_sum(count, shared));
}

template <class T, int kVariant>
__device__ void row_sums(const RowSumsArguments& a) {
  __shared__ float shared[kThreads / kWarp];
  const i64 begin = blockIdx.x;
  if (!begins_run(a, begin)) return;  // the whole block
  const i64 index = a.indices[begin];
  i64 end = begin + 1;
  while (end < a.count && a.indices[end] == index) ++end;
  const i64 run = kVariant == kRoundedSums ? runs_before(a, begin, shared) : 0;
  for (i64 column = threadIdx.x; column < a.columns; column += blockDim.x) {
    const i64 place = index * a.columns + column;
    float sum = kVariant == kExactSums ? static_cast<const float*>(a.target)[place] : 0.0F;
    for (i64 i = begin; i < end; ++i) {
      const i64 row = a.order == nullptr ? i : a.order[i];
      sum += a.rows[row * a.columns + column];
    }
    if (kVariant == kExactSums) {
      static_cast<float*>(a.target)[place] = sum;
    } else {
      u16& target = static_cast<u16*>(a.target)[place];
      const u32 number =
          rounding_number(static_cast<u64>(run * a.columns + column), a.rounding_key);
      target = round_with(widen(bfloat16{target}) + sum, number);
    }
  }
}

}  // namespace finetune::kernels::cuda
