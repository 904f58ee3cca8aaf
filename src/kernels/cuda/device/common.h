// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/cuda/device/arguments.h"

// Functions that kernels share. `float16` and `bfloat16` are storage types; all arithmetic is
// float32.
namespace finetune::kernels::cuda {

struct float16 {
  u16 bits;
};
struct bfloat16 {
  u16 bits;
};

__device__ inline u32 bits_of(float x) {
#ifdef __CUDACC__
  return __float_as_uint(x);
#else
  return __builtin_bit_cast(u32, x);
#endif
}
__device__ inline float float_of(u32 bits) {
#ifdef __CUDACC__
  return __uint_as_float(bits);
#else
  return __builtin_bit_cast(float, bits);
#endif
}

__device__ inline float lowest() { return float_of(0xFF800000U); }  // minus infinity

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(bfloat16 x) { return float_of(static_cast<u32>(x.bits) << 16); }
__device__ inline float widen(float16 x) {
#ifdef __CUDACC__
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
#elif defined(FINETUNE_NO_FLOAT16)
  return _cvtsh_ss(x.bits);
#else
  return static_cast<float>(__builtin_bit_cast(_Float16, x.bits));
#endif
}

// Rounds to nearest, ties to even.
template <class T>
__device__ T narrow(float x);
template <>
__device__ inline float narrow<float>(float x) {
  return x;
}
// In integer arithmetic as on the CPU where the architecture has no instruction.
template <>
__device__ inline bfloat16 narrow<bfloat16>(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  bfloat16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
#else
  const u32 bits = bits_of(x);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return {0x7FC0};
  return {static_cast<u16>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16)};
#endif
}
template <>
__device__ inline float16 narrow<float16>(float x) {
  float16 y;
#ifdef __CUDACC__
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#elif defined(FINETUNE_NO_FLOAT16)
  y.bits = _cvtss_sh(x, 0);  // to nearest
#else
  y.bits = __builtin_bit_cast(u16, static_cast<_Float16>(x));
#endif
  return y;
}

template <class T>
struct alignas(2 * sizeof(T)) Two {
  T at[2];
};

// Four values that one load or store instruction moves.
template <class T>
struct alignas(4 * sizeof(T)) Four {
  T at[4];
};

// Eight aligned values, moved by as few instructions as the type allows.
template <class T>
struct Eight {
  static constexpr int kPer = sizeof(T) == 2 ? 8 : 4;  // 16 bytes
  struct alignas(16) Part {
    T at[kPer];
  };
  Part parts[8 / kPer];

  __device__ void load(const T* values) {
#pragma unroll
    for (int i = 0; i < 8 / kPer; ++i) parts[i] = reinterpret_cast<const Part*>(values)[i];
  }
  __device__ void store(T* values) const {
#pragma unroll
    for (int i = 0; i < 8 / kPer; ++i) reinterpret_cast<Part*>(values)[i] = parts[i];
  }
  __device__ T& at(int i) { return parts[i / kPer].at[i % kPer]; }
};

// Loads values [first, first + 4) of a row of `columns`; zeros after its end.
template <class T>
__device__ inline void load4(const T* row, i64 first, i64 columns, bool is_aligned, float* values) {
  if (is_aligned && first < columns) {
    const Four<T> four = *reinterpret_cast<const Four<T>*>(row + first);
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = widen(four.at[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) values[i] = first + i < columns ? widen(row[first + i]) : 0.0F;
}

// Loads of aligned rows are under way together as long as neither a branch nor an arithmetic
// operation stands between them: they are widened when all have been started.
template <class T, int kCount>
struct AlignedRow {
  Four<T> fours[kCount];

  // Zeros after the end of the row.
  template <class Column>
  __device__ void load(const T* row, i64 columns, const Column& column) {
#pragma unroll
    for (int v = 0; v < kCount; ++v) {
      fours[v] = {};
      if (column(v) < columns) fours[v] = *reinterpret_cast<const Four<T>*>(row + column(v));
    }
  }
  __device__ void widen_to(float* values) const {
#pragma unroll
    for (int i = 0; i < 4 * kCount; ++i) values[i] = widen(fours[i / 4].at[i % 4]);
  }
};

// Stores four values; those after the end of the row are not written.
template <class T>
__device__ inline void store4(T* row, i64 first, i64 columns, bool is_aligned,
                              const float* values) {
  if (is_aligned && first < columns) {
    Four<T> four;
#pragma unroll
    for (int i = 0; i < 4; ++i) four.at[i] = narrow<T>(values[i]);
    *reinterpret_cast<Four<T>*>(row + first) = four;
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (first + i < columns) row[first + i] = narrow<T>(values[i]);
  }
}

// Eight values, of which 16 bits each are moved by one instruction.
template <class T>
__device__ inline void load8(const T* row, i64 first, i64 columns, bool is_aligned, float* values) {
  if constexpr (sizeof(T) == 2) {
    if (is_aligned && first < columns) {
      Eight<T> eight;
      eight.load(row + first);
#pragma unroll
      for (int i = 0; i < 8; ++i) values[i] = widen(eight.at(i));
      return;
    }
  }
  load4(row, first, columns, is_aligned, values);
  load4(row, first + 4, columns, is_aligned, values + 4);
}
template <class T>
__device__ inline void store8(T* row, i64 first, i64 columns, bool is_aligned,
                              const float* values) {
  if constexpr (sizeof(T) == 2) {
    if (is_aligned && first < columns) {
      Eight<T> eight;
#pragma unroll
      for (int i = 0; i < 8; ++i) eight.at(i) = narrow<T>(values[i]);
      eight.store(row + first);
      return;
    }
  }
  store4(row, first, columns, is_aligned, values);
  store4(row, first + 4, columns, is_aligned, values + 4);
}

// Philox 4x32-10 (finetune/base/random.h).
__device__ inline void philox(u32* c, u32 key0, u32 key1) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const u32 high0 = __umulhi(0xD2511F53U, c[0]);
    const u32 low0 = 0xD2511F53U * c[0];
    const u32 high1 = __umulhi(0xCD9E8D57U, c[2]);
    const u32 low1 = 0xCD9E8D57U * c[2];
    c[0] = high1 ^ c[1] ^ key0;
    c[1] = low1;
    c[2] = high0 ^ c[3] ^ key1;
    c[3] = low0;
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
}

// Draws the random words of columns [4 * block, 4 * block + 4) of row head * 2^16 + position.
__device__ inline void dropout_words(const DropoutArguments& d, u32 sample, u32 row, u32 block,
                                     u32* words) {
  words[0] = block;
  words[1] = row;
  words[2] = sample + d.first_position;
  words[3] = d.layer_and_site;
  philox(words, d.key0, d.key1);
}

__device__ inline float dropout_factor(const DropoutArguments& d, u32 word) {  // 0 or scale
  return word >= d.threshold ? d.scale : 0.0F;
}

// The dropout factors of four values of a row, from column 4 * block on.
__device__ inline void dropout_factors(const DropoutArguments& d, u32 sample, u32 head,
                                       u32 position, u32 block, float* factors) {
  u32 words[4];
  dropout_words(d, sample, head * 65536U + position, block, words);
#pragma unroll
  for (int i = 0; i < 4; ++i) factors[i] = dropout_factor(d, words[i]);
}

// Where row `row` of [B, T, C], or of a layout's tokens, is. Found once for a row: stores between
// two calls would make the second load it again.
struct RowPosition {
  u32 sample = 0;
  u32 position = 0;

  __device__ RowPosition(const DropoutArguments& d, i64 row) {
    if (!d.is_on) return;
    const bool has_layout = d.sequences != nullptr;
    sample = static_cast<u32>(has_layout ? d.sequences[row] : row / d.rows_per_sample);
    position = static_cast<u32>(has_layout ? d.positions[row] : row % d.rows_per_sample);
  }
  __device__ void factors(const DropoutArguments& d, u32 block, float* factors) const {
    dropout_factors(d, sample, 0, position, block, factors);
  }
};

// Sums by a butterfly: all lanes get the same bits.
__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xFFFFFFFFU, x, lanes);
  return x;
}
__device__ inline float warp_largest(float x) {
#pragma unroll
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    const float other = __shfl_xor_sync(0xFFFFFFFFU, x, lanes);
    x = other > x ? other : x;
  }
  return x;
}

// Sums over all threads of a block; every thread gets it. `shared` has one value for each warp.
__device__ inline float block_sum(float x, float* shared) {
  x = warp_sum(x);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  float sum = 0.0F;
  for (u32 warp = 0; warp < blockDim.x / kWarp; ++warp) sum += shared[warp];
  __syncthreads();
  return sum;
}
__device__ inline float block_largest(float x, float* shared) {
  x = warp_largest(x);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  float largest = shared[0];
  for (u32 warp = 1; warp < blockDim.x / kWarp; ++warp) {
    largest = shared[warp] > largest ? shared[warp] : largest;
  }
  __syncthreads();
  return largest;
}

}  // namespace finetune::kernels::cuda
