// SPDX-License-Identifier: MIT
// Values of NF4 codes (finetune/kernels/nf4.h). A thread writes eight, which are of one block.
#include "kernels/cuda/device/common.h"

namespace finetune::kernels::cuda {

template <class T, int kVariant>
__device__ void dequantize_nf4(const Nf4Arguments& a) {
  __shared__ float map[16];
  if (threadIdx.x < 16) map[threadIdx.x] = a.map[threadIdx.x];
  __syncthreads();
  const i64 first = 8 * (static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x);
  if (first >= a.count) return;
  const i64 position = a.first + first;  // of the row, a multiple of 8
  const float scale = a.scales[position / kNf4Values];
  float values[8];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const bool is_there = first + 2 * i < a.count;
    const unsigned int code = is_there ? a.codes[position / 2 + i] : 0U;
    values[2 * i] = map[code >> 4] * scale;
    values[2 * i + 1] = map[code & 15] * scale;
  }
  store8(static_cast<T*>(a.values), first, a.count, a.is_aligned, values);
}

}  // namespace finetune::kernels::cuda
