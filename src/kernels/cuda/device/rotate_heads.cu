// SPDX-License-Identifier: MIT
// Turns the pairs (i, i + half) of each head by angles of their token, in place (Su et al. 2021). A
// thread handles four pairs (variant 0), or one (variant 1: sizes that are no multiple of four, or
// unaligned memory).
#include "kernels/cuda/device/common.h"

namespace finetune::kernels::cuda {

template <class T, int kVariant>
__device__ void rotate_heads(const RotateHeadsArguments& a) {
  constexpr int kPairs = kVariant == 0 ? 4 : 1;
  const float sign = a.back != 0 ? -1.0F : 1.0F;
  const u32 steps = static_cast<u32>(a.half / kPairs);
  const i64 thread = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int heads = a.heads[0] + a.heads[1];
  const i64 row = thread / steps / heads;
  if (row < a.rows) {
    const int head = static_cast<int>(thread / steps % heads);
    const i64 position = row % a.tokens;
    const int pair = kPairs * static_cast<int>(thread % steps);
    const bool is_second = head >= a.heads[0];
    const i64 first =
        row * (is_second ? a.heads[1] : a.heads[0]) + (is_second ? head - a.heads[0] : head);
    T* const low = static_cast<T*>(is_second ? a.values[1] : a.values[0]) + first * a.size + pair;
    T* const high = low + a.half;
    float cos[4];
    float sin[4];
    float x[4];
    float y[4];
    if constexpr (kVariant == 0) {
      load4(a.cos + position * a.half, pair, a.half, true, cos);
      load4(a.sin + position * a.half, pair, a.half, true, sin);
      load4(low, 0, 4, true, x);
      load4(high, 0, 4, true, y);
    } else {
      cos[0] = a.cos[position * a.half + pair];
      sin[0] = a.sin[position * a.half + pair];
      x[0] = widen(*low);
      y[0] = widen(*high);
    }
#pragma unroll
    for (int k = 0; k < kPairs; ++k) {
      const float turned = x[k] * cos[k] - sign * (y[k] * sin[k]);
      y[k] = y[k] * cos[k] + sign * (x[k] * sin[k]);
      x[k] = turned;
    }
    if constexpr (kVariant == 0) {
      store4(low, 0, 4, true, x);
      store4(high, 0, 4, true, y);
    } else {
      *low = narrow<T>(x[0]);
      *high = narrow<T>(y[0]);
    }
  }
}

}  // namespace finetune::kernels::cuda
