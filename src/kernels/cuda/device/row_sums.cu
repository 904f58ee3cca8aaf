// SPDX-License-Identifier: MIT
// target[index] += row. Indices are sorted: the block where a run of equal indices begins adds the
// rows of that run, in their order.
#include "kernels/cuda/device/common.h"

namespace finetune::kernels::cuda {

template <class T, int kVariant>
__device__ void row_sums(const RowSumsArguments& a) {
  const i64 begin = blockIdx.x;
  const i64 index = a.indices[begin];
  if (index == a.skipped || (begin > 0 && a.indices[begin - 1] == index)) return;
  i64 end = begin + 1;
  while (end < a.count && a.indices[end] == index) ++end;
  float* const target = a.target + index * a.columns;
  for (i64 column = threadIdx.x; column < a.columns; column += blockDim.x) {
    float sum = target[column];
    for (i64 i = begin; i < end; ++i) sum += a.rows[a.order[i] * a.columns + column];
    target[column] = sum;
  }
}

}  // namespace finetune::kernels::cuda
