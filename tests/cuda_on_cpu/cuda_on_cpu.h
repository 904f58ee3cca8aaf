// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#ifdef FINETUNE_NO_FLOAT16
#include <immintrin.h>
#endif

// Runs CUDA kernels on the host: every thread of a block is a fiber, and a host thread switches to
// the next fiber at each barrier and each exchange within a warp. g++ compiles the same sources
// that NVRTC compiles for GPUs. x86-64 only.
//
// This detects missing barriers where the order of threads matters, threads that exit before a
// barrier, and lanes that are missing at an exchange. It cannot detect errors that only occur if
// threads run at the same time.

#define __global__
#define __device__
// One copy is enough, because blocks run one after another.
#define __shared__ static

namespace cuda_on_cpu {

struct Index {
  unsigned x = 1, y = 1, z = 1;
};

// The indices of the running fiber.
struct Position {
  Index thread, block, threads, blocks;
};
[[gnu::visibility("hidden")]] extern Position position;

// Yields until all threads are at the barrier of this line.
void wait_at_barrier(int line);

// Yields until all lanes of the mask are at the exchange of this line with their values, which
// value_of_lane() then shows until the running fiber yields again.
constexpr size_t kLargestValue = 32;  // bytes
void exchange(unsigned mask, const void* value, size_t bytes, int line);
const void* value_of_lane(unsigned lane);

template <class T>
T exchange_value(unsigned mask, T value, unsigned from_lane, int line) {
  static_assert(sizeof(T) <= kLargestValue);
  exchange(mask, &value, sizeof(T), line);
  std::memcpy(&value, value_of_lane(from_lane), sizeof(T));
  return value;
}

// The values of a whole warp's lanes.
template <class T>
void gather(const T& value, T (&all)[32], int line) {
  static_assert(sizeof(T) <= kLargestValue);
  exchange(0xFFFFFFFFU, &value, sizeof(T), line);
  for (unsigned lane = 0; lane < 32; ++lane)
    std::memcpy(&all[lane], value_of_lane(lane), sizeof(T));
}

// Calls kernel(arguments) for every thread of every block. `order`: 0 runs threads in ascending
// order, other values are seeds of another order. Throws std::runtime_error if threads miss a
// barrier or exchange. One thread's call at a time; others wait.
void run(void (*kernel)(const void*), const void* arguments, Index blocks, Index threads,
         unsigned order);

}  // namespace cuda_on_cpu

#define threadIdx (cuda_on_cpu::position.thread)
#define blockIdx (cuda_on_cpu::position.block)
#define blockDim (cuda_on_cpu::position.threads)
#define gridDim (cuda_on_cpu::position.blocks)
#define __syncthreads() cuda_on_cpu::wait_at_barrier(__LINE__)
#define __shfl_xor_sync(mask, value, lanes)                                                 \
  cuda_on_cpu::exchange_value(mask, value, threadIdx.x % 32 ^ static_cast<unsigned>(lanes), \
                              __LINE__)
inline uint32_t __umulhi(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>(uint64_t{a} * b >> 32);
}
