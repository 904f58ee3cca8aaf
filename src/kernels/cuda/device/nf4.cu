// SPDX-License-Identifier: MIT
// Values of codes of four bits: variant 0 of NF4 (finetune/kernels/nf4.h), 1 of MXFP4
// (finetune/kernels/mxfp4.h). A thread writes eight, which are of one block.
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
  float scale;
  if (kVariant == 0) {
    scale = static_cast<const float*>(a.scales)[position / kNf4Values];
  } else {
    const unsigned int power = static_cast<const unsigned char*>(a.scales)[position / 32];
    scale = float_of(power == 0U ? 0x00400000U : power << 23);
  }
  float values[8];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const bool is_there = first + 2 * i < a.count;
    const unsigned int code = is_there ? a.codes[position / 2 + i] : 0U;
    const float high = map[code >> 4] * scale;
    const float low = map[code & 15] * scale;
    values[2 * i] = kVariant == 0 ? high : low;
    values[2 * i + 1] = kVariant == 0 ? low : high;
  }
  store8(static_cast<T*>(a.values), first, a.count, a.is_aligned, values);
}

}  // namespace finetune::kernels::cuda
