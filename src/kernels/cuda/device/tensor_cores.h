// SPDX-License-Identifier: MIT
#pragma once

#include "kernels/cuda/device/common.h"

// Products of 16-bit matrices by a warp's tensor cores, with sums in float32. Requires compute
// capability 8.0; a kernel that is compiled for less stops.
//
// Where lane l = 4 g + t holds values of a fragment (PTX ISA, mma.m16n8k16), two to a register:
//   a [16, 16]: rows g and g + 8 of columns 2 t and 2 t + 1, then of columns 2 t + 8 and 2 t + 9
//   b [16, 8]: column g of rows 2 t and 2 t + 1, then of rows 2 t + 8 and 2 t + 9
//   c [16, 8]: columns 2 t and 2 t + 1 of row g, then of row g + 8
namespace finetune::kernels::cuda {

template <class T>
constexpr bool kIsBFloat16 = false;
template <>
constexpr bool kIsBFloat16<bfloat16> = true;

// Value `index` of two in a register.
template <class T>
__device__ inline float half_of(u32 two, u32 index) {
  return widen(T{static_cast<u16>(two >> 16 * index)});
}

// Two values, rounded to nearest.
template <class T>
__device__ inline u32 packed(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  u32 both;
  if constexpr (kIsBFloat16<T>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  }
  return both;
#else
  return static_cast<u32>(narrow<T>(low).bits) | static_cast<u32>(narrow<T>(high).bits) << 16;
#endif
}

#ifdef __CUDACC__

// c += a b
template <class T>
__device__ inline void multiply_add(float* c, const u32* a, const u32* b);
#if __CUDA_ARCH__ >= 800
#define FINETUNE_MULTIPLY_ADD(Type, name)                                           \
  template <>                                                                       \
  __device__ inline void multiply_add<Type>(float* c, const u32* a, const u32* b) { \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." name "." name                      \
        ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"      \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                            \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));        \
  }
FINETUNE_MULTIPLY_ADD(bfloat16, "bf16")
FINETUNE_MULTIPLY_ADD(float16, "f16")
#undef FINETUNE_MULTIPLY_ADD
#else
template <class T>
__device__ inline void multiply_add(float*, const u32*, const u32*) {
  asm("trap;");
}
#endif

// Loads four matrices [8, 8] from shared memory: lane l gives the address of row l % 8 of matrix
// l / 8, and gets of each matrix columns 2 t and 2 t + 1 of row g; transposed, rows 2 t and 2 t + 1
// of column g.
template <bool kTransposed>
__device__ inline void load_matrices(u32* r, const u16* row) {
  const u32 address = static_cast<u32>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  }
}

#else

struct Operands {
  u32 a[4];
  u32 b[2];
};

template <class T>
inline void multiply_add(float* c, const u32* a, const u32* b) {
  const Operands own = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  Operands all[kWarp];
  cuda_on_cpu::gather(own, all, __LINE__);
  const u32 lane = threadIdx.x % kWarp;
  for (u32 i = 0; i < 4; ++i) {
    const u32 row = lane / 4;
    const u32 column = 2 * (lane % 4) + i % 2;
    for (u32 k = 0; k < 16; ++k) {
      const Operands& of_row = all[4 * row + k % 8 / 2];
      const Operands& of_column = all[4 * column + k % 8 / 2];
      c[i] +=
          half_of<T>(of_row.a[2 * (k / 8) + i / 2], k % 2) * half_of<T>(of_column.b[k / 8], k % 2);
    }
  }
}

template <bool kTransposed>
inline void load_matrices(u32* r, const u16* row) {
  const u16* all[kWarp];
  cuda_on_cpu::gather(row, all, __LINE__);
  const u32 g = threadIdx.x % kWarp / 4;
  const u32 t = threadIdx.x % 4;
  for (u32 i = 0; i < 4; ++i) {
    const u16* const* const rows = all + 8 * i;
    const u16 low = kTransposed ? rows[2 * t][g] : rows[g][2 * t];
    const u16 high = kTransposed ? rows[2 * t + 1][g] : rows[g][2 * t + 1];
    r[i] = low | static_cast<u32>(high) << 16;
  }
}

#endif

}  // namespace finetune::kernels::cuda
