// SPDX-License-Identifier: MIT
// target[index] += row. Indices are sorted: the block at which a run of equal ones begins adds its
// rows, in their order; those of a part (kRowsOfPart positions of one index), which row_parts() has
// summed, at once.
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

__device__ inline i64 row_at(const RowSumsArguments& a, i64 position) {
  return a.order == nullptr ? position : a.order[position];
}

// The end of the run that contains `begin`.
__device__ inline i64 end_of_run(const RowSumsArguments& a, i64 begin) {
  const i64 index = a.indices[begin];
  i64 inside = begin;
  i64 outside = a.count;
  while (outside - inside > 1) {
    const i64 middle = inside + (outside - inside) / 2;
    (a.indices[middle] == index ? inside : outside) = middle;
  }
  return outside;
}

// A thread's column of a part.
template <class T, int kVariant>
__device__ void row_parts(const RowSumsArguments& a) {
  const i64 column = static_cast<i64>(blockIdx.y) * blockDim.x + threadIdx.x;
  const i64 begin = static_cast<i64>(blockIdx.x) * kRowsOfPart;
  const i64 index = a.indices[begin];
  if (column >= a.columns || index == a.skipped || a.indices[begin + kRowsOfPart - 1] != index) {
    return;
  }
  float sum = 0.0F;
#pragma unroll 8
  for (i64 i = begin; i < begin + kRowsOfPart; ++i) {
    sum += a.rows[row_at(a, i) * a.columns + column];
  }
  a.parts[blockIdx.x * a.columns + column] = sum;
}

template <class T, int kVariant>
__device__ void row_sums(const RowSumsArguments& a) {
  __shared__ float shared[kThreads / kWarp];
  const i64 begin = blockIdx.x;
  if (!begins_run(a, begin)) return;  // the whole block
  const i64 index = a.indices[begin];
  const i64 end = end_of_run(a, begin);
  const i64 run = kVariant == kRoundedSums ? runs_before(a, begin, shared) : 0;
  // Whole parts of the run; rows before and after them are added one by one.
  const i64 first_part = (begin + kRowsOfPart - 1) / kRowsOfPart;
  const i64 end_of_parts = end / kRowsOfPart;
  const bool has_parts = a.parts != nullptr && first_part < end_of_parts;
  const i64 head = has_parts ? first_part * kRowsOfPart : end;
  for (i64 column = threadIdx.x; column < a.columns; column += blockDim.x) {
    const i64 element = index * a.columns + column;
    float sum = kVariant == kExactSums ? static_cast<const float*>(a.target)[element] : 0.0F;
    for (i64 i = begin; i < head; ++i) sum += a.rows[row_at(a, i) * a.columns + column];
    if (has_parts) {
#pragma unroll 4
      for (i64 part = first_part; part < end_of_parts; ++part) {
        sum += a.parts[part * a.columns + column];
      }
      for (i64 i = end_of_parts * kRowsOfPart; i < end; ++i) {
        sum += a.rows[row_at(a, i) * a.columns + column];
      }
    }
    if (kVariant == kExactSums) {
      static_cast<float*>(a.target)[element] = sum;
    } else {
      u16& target = static_cast<u16*>(a.target)[element];
      const u32 number =
          rounding_number(static_cast<u64>(run * a.columns + column), a.rounding_key);
      target = round_with(widen(bfloat16{target}) + sum, number);
    }
  }
}

}  // namespace finetune::kernels::cuda
