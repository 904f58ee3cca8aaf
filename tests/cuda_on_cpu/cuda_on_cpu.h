// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

// Runs CUDA kernels on the host: every thread of a block is a fiber of the host's thread, which
// continues with the next one at a barrier or at an exchange within a warp. g++ compiles the
// sources that NVRTC compiles for GPUs. x86-64.
//
// Found: a barrier that is missing where the order of threads decides, threads that leave before a
// barrier, lanes that are not at an exchange. Not found: what only threads that run at the same
// time do.

#define __global__
#define __device__
// One a block; blocks run one after another.
#define __shared__ static thread_local

namespace cuda_on_cpu {

struct Index {
  unsigned x = 1, y = 1, z = 1;
};

// Who runs: where the fiber is.
struct Place {
  Index thread, block, threads, blocks;
};
Place& place();

// Gives way until all threads are at the barrier of this line, or all lanes of the mask at the
// exchange of this line, each with its value.
void wait_at_barrier(int line);
uint64_t exchange(unsigned mask, uint64_t value, unsigned from_lane, int line);

template <class T>
T exchange_value(unsigned mask, T value, unsigned from_lane, int line) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = exchange(mask, bits, from_lane, line);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

// Calls kernel(arguments) as every thread of every block. `order`: 0 ascending, else a seed of the
// order in which threads run. Throws std::runtime_error where threads miss a barrier or exchange.
void run(void (*kernel)(const void*), const void* arguments, Index blocks, Index threads,
         unsigned order);

}  // namespace cuda_on_cpu

#define threadIdx (cuda_on_cpu::place().thread)
#define blockIdx (cuda_on_cpu::place().block)
#define blockDim (cuda_on_cpu::place().threads)
#define gridDim (cuda_on_cpu::place().blocks)
#define __syncthreads() cuda_on_cpu::wait_at_barrier(__LINE__)
#define __shfl_xor_sync(mask, value, lanes)                                                 \
  cuda_on_cpu::exchange_value(mask, value, threadIdx.x % 32 ^ static_cast<unsigned>(lanes), \
                              __LINE__)
inline uint32_t __umulhi(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(uint64_t{a} * b >> 32);
}
