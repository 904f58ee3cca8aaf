// SPDX-License-Identifier: MIT
// x times its dropout mask, four values per thread.
#include "kernels/cuda/device/common.h"

namespace finetune::kernels::cuda {

template <class T, int kVariant>
__device__ void dropout(const DropoutKernelArguments& a) {
  const i64 blocks = (a.columns + 3) / 4;
  const i64 index = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  const i64 row = index / blocks;
  if (row >= a.rows) return;
  const auto block = static_cast<u32>(index % blocks);
  float factors[4];
  if (a.heads == 1) {
    RowPosition(a.dropout, row).factors(a.dropout, block, factors);
  } else {
    const i64 position = row % a.dropout.rows_per_sample;
    const i64 head = row / a.dropout.rows_per_sample;
    dropout_factors(a.dropout, static_cast<u32>(head / a.heads), static_cast<u32>(head % a.heads),
                    static_cast<u32>(position), block, factors);
  }
  float x[4];
  const i64 first = 4 * static_cast<i64>(block);
  load4(static_cast<const T*>(a.input) + row * a.columns, first, a.columns, false, x);
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] *= factors[i];
  store4(static_cast<T*>(a.output) + row * a.columns, first, a.columns, false, x);
}

}  // namespace finetune::kernels::cuda
