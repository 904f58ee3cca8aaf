// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/cuda/device/common.h"

// What kernels over rows of attention scores share. A row is in the registers of a warp (variants 0
// to 3: 1, 2, 4, 8 times four values a lane) or, from 1,025 keys on, of a block (variants 4 to 6:
// 2, 4, 8 times four a thread).
namespace finetune::kernels::cuda {

// How a variant divides rows.
template <int kVariant>
struct RowsOf {
  static constexpr bool kWholeBlock = kVariant >= 4;
  static constexpr int kVectors = 1 << (kWholeBlock ? kVariant - 3 : kVariant);
  // Whether registers hold two rows; else one of them is read again, from the cache.
  static constexpr bool kKeepsTwo = kVectors < 8;

  __device__ static i64 row() {
    return kWholeBlock ? static_cast<i64>(blockIdx.x)
                       : static_cast<i64>(blockIdx.x) * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  }
  __device__ static i64 first_key(int vector) {
    const u32 lanes = kWholeBlock ? blockDim.x : kWarp;
    return 4 * (static_cast<i64>(vector) * lanes + threadIdx.x % lanes);
  }
  __device__ static float sum(float x, float* shared) {
    return kWholeBlock ? block_sum(x, shared) : warp_sum(x);
  }
  __device__ static float largest(float x, float* shared) {
    return kWholeBlock ? block_largest(x, shared) : warp_largest(x);
  }
};

}  // namespace finetune::kernels::cuda
