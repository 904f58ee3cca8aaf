// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/loops/vector_clones.h"

// Sixteen floats in as many vectors as the processor's vector width W requires: 1 x 16 (AVX512), 2
// x 8 (AVX2) or 4 x 4. Sums always run in sixteen lanes, and where nothing is fused (src's list of
// exact loops) all widths give the same bits. These are the compilers' vector types because
// compilers vectorised plain loops over rows in some functions and not in others.
namespace finetune::kernels {

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"  // everything here is inlined
#endif

// For lambdas in cloned code: inlined, so that they are compiled for the clone's processor.
#define FT_INLINE_LAMBDA __attribute__((always_inline))

constexpr int kLanes = 16;

struct BFloat16Bits {
  uint16_t bits;
};
struct HalfBits {
  uint16_t bits;
};

template <int W>
struct Vector {
  typedef float Float __attribute__((vector_size(4 * W)));
  typedef int32_t Int __attribute__((vector_size(4 * W)));
  typedef uint32_t Bits __attribute__((vector_size(4 * W)));
  typedef uint16_t Short __attribute__((vector_size(2 * W)));
};

template <int W>
struct Lanes {
  using Float = typename Vector<W>::Float;
  static constexpr int kParts = kLanes / W;
  Float part[kParts];

  // Leaves the lanes uninitialised.
  Lanes() = default;
  FT_INLINE explicit Lanes(float x) {
    for (Float& p : part) p = Float{} + x;
  }
};

#define FT_LANES_OPERATOR(op)                                            \
  template <int W>                                                       \
  FT_INLINE Lanes<W> operator op(const Lanes<W>& a, const Lanes<W>& b) { \
    Lanes<W> result;                                                     \
    for (int i = 0; i < Lanes<W>::kParts; ++i) {                         \
      result.part[i] = a.part[i] op b.part[i];                           \
    }                                                                    \
    return result;                                                       \
  }                                                                      \
  template <int W>                                                       \
  FT_INLINE Lanes<W> operator op(const Lanes<W>& a, float b) {           \
    Lanes<W> result;                                                     \
    for (int i = 0; i < Lanes<W>::kParts; ++i) {                         \
      result.part[i] = a.part[i] op b;                                   \
    }                                                                    \
    return result;                                                       \
  }
FT_LANES_OPERATOR(+)
FT_LANES_OPERATOR(-)
FT_LANES_OPERATOR(*)
#undef FT_LANES_OPERATOR

// Applies the function to each vector.
template <int W, typename Function>
FT_INLINE Lanes<W> map(const Lanes<W>& x, const Function& function) {
  Lanes<W> result;
  for (int i = 0; i < Lanes<W>::kParts; ++i) result.part[i] = function(x.part[i]);
  return result;
}

template <int W>
FT_INLINE Lanes<W> larger(const Lanes<W>& a, const Lanes<W>& b) {
  Lanes<W> result;
  for (int i = 0; i < Lanes<W>::kParts; ++i) {
    result.part[i] = a.part[i] > b.part[i] ? a.part[i] : b.part[i];
  }
  return result;
}

template <int W>
FT_INLINE float sum(const Lanes<W>& x) {
  float lanes[kLanes];
  std::memcpy(lanes, &x, sizeof(lanes));
  float total = 0.0F;
  for (int i = 0; i < 4; ++i) {
    total += (lanes[i] + lanes[i + 4]) + (lanes[i + 8] + lanes[i + 12]);
  }
  return total;
}

template <int W>
FT_INLINE float largest(const Lanes<W>& x) {
  float lanes[kLanes];
  std::memcpy(lanes, &x, sizeof(lanes));
  float result = lanes[0];
  for (int i = 1; i < kLanes; ++i) result = lanes[i] > result ? lanes[i] : result;
  return result;
}

// Storage formats in memory. Storing rounds to nearest, ties to even.

template <int W>
FT_INLINE typename Vector<W>::Float widen(const float* source) {
  typename Vector<W>::Float x;
  std::memcpy(&x, source, sizeof(x));
  return x;
}

template <int W>
FT_INLINE typename Vector<W>::Bits load_short(const void* source) {
  typename Vector<W>::Short bits;
  std::memcpy(&bits, source, sizeof(bits));
  return __builtin_convertvector(bits, typename Vector<W>::Bits);
}

template <int W>
FT_INLINE typename Vector<W>::Float widen(const BFloat16Bits* source) {
  return reinterpret_cast<typename Vector<W>::Float>(load_short<W>(source) << 16);
}

// Multiplying by 2^112 corrects the exponent's bias (127 - 15), for subnormal numbers too.
template <int W>
FT_INLINE typename Vector<W>::Float widen(const HalfBits* source) {
  using Float = typename Vector<W>::Float;
  using Bits = typename Vector<W>::Bits;
  const Bits bits = load_short<W>(source);
  const Bits magnitude = (bits & 0x7FFFU) << 13;
  const Bits finite = reinterpret_cast<Bits>(reinterpret_cast<Float>(magnitude) * 0x1.0p112F);
  const Bits value = magnitude >= 0x0F800000U ? magnitude | 0x7F800000U : finite;
  return reinterpret_cast<Float>(value | (bits & 0x8000U) << 16);
}

template <int W>
FT_INLINE void narrow(typename Vector<W>::Float x, float* target) {
  std::memcpy(target, &x, sizeof(x));
}

template <int W>
FT_INLINE void store_short(typename Vector<W>::Bits bits, void* target) {
  const auto narrowed = __builtin_convertvector(bits, typename Vector<W>::Short);
  std::memcpy(target, &narrowed, sizeof(narrowed));
}

template <int W>
FT_INLINE void narrow(typename Vector<W>::Float x, BFloat16Bits* target) {
  using Bits = typename Vector<W>::Bits;
  const Bits bits = reinterpret_cast<Bits>(x);
  const Bits rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const Bits nan = Bits{} + 0x7FC0U;
  store_short<W>((bits & 0x7FFFFFFFU) > 0x7F800000U ? nan : rounded, target);
}

template <int W>
FT_INLINE void narrow(typename Vector<W>::Float x, HalfBits* target) {
  using Float = typename Vector<W>::Float;
  using Bits = typename Vector<W>::Bits;
  const Bits bits = reinterpret_cast<Bits>(x);
  const Bits magnitude = bits & 0x7FFFFFFFU;
  const Bits normal = (magnitude + 0xFFFU + ((magnitude >> 13) & 1U) - 0x38000000U) >> 13;
  // Adding 0.5 rounds to multiples of 2^-24, the spacing of half's subnormal numbers, as 2^-24 is
  // the last place of a float32 in [0.5, 1).
  const Bits subnormal =
      reinterpret_cast<Bits>(reinterpret_cast<Float>(magnitude) + 0.5F) - 0x3F000000U;
  const Bits infinity = Bits{} + 0x7C00U;
  const Bits nan = Bits{} + 0x7E00U;
  const Bits finite = magnitude < 0x38800000U ? subnormal : normal;
  const Bits bounded = magnitude >= 0x477FF000U ? infinity : finite;
  const Bits value = magnitude > 0x7F800000U ? nan : bounded;
  store_short<W>(value | ((bits >> 16) & 0x8000U), target);
}

template <int W, typename Storage>
FT_INLINE Lanes<W> load_all(const Storage* source) {
  Lanes<W> x;
  for (int i = 0; i < Lanes<W>::kParts; ++i) x.part[i] = widen<W>(source + i * W);
  return x;
}

template <int W, typename Storage>
FT_INLINE void store_all(const Lanes<W>& x, Storage* target) {
  for (int i = 0; i < Lanes<W>::kParts; ++i) narrow<W>(x.part[i], target + i * W);
}

// Loads the first `count` lanes (all from 16 on); the other lanes are `rest`.
template <int W, typename Storage>
FT_INLINE Lanes<W> load(const Storage* source, int64_t count, float rest = 0.0F) {
  if (count >= kLanes) return load_all<W>(source);
  Storage copy[kLanes] = {};
  std::memcpy(static_cast<void*>(copy), source, static_cast<size_t>(count) * sizeof(Storage));
  Lanes<W> x = load_all<W>(copy);
  if (rest != 0.0F) {
    float lanes[kLanes];
    std::memcpy(lanes, &x, sizeof(lanes));
    for (int64_t i = count; i < kLanes; ++i) lanes[i] = rest;
    std::memcpy(static_cast<void*>(&x), lanes, sizeof(lanes));
  }
  return x;
}

template <int W, typename Storage>
FT_INLINE void store(const Lanes<W>& x, int64_t count, Storage* target) {
  if (count >= kLanes) {
    store_all<W>(x, target);
    return;
  }
  Storage copy[kLanes];
  store_all<W>(x, copy);
  std::memcpy(static_cast<void*>(target), copy, static_cast<size_t>(count) * sizeof(Storage));
}

// Returns x as it reads back after it was stored in this type.
template <typename Storage, int W>
FT_INLINE Lanes<W> rounded_to(const Lanes<W>& x) {
  if constexpr (std::is_same_v<Storage, float>) {
    return x;
  } else {
    Storage copy[kLanes];
    store_all<W>(x, copy);
    return load_all<W>(copy);
  }
}

}  // namespace finetune::kernels

// Defines `void name(const Arguments&)`, which calls the widest of body<16>, body<8> and body<4>
// that the processor supports.
#if defined(__x86_64__)
#define FT_VECTOR_KERNEL(name, Arguments, body)                                          \
  namespace {                                                                            \
  __attribute__((target("arch=x86-64-v4"))) void name##_16(const Arguments& arguments) { \
    body<16>(arguments);                                                                 \
  }                                                                                      \
  __attribute__((target("arch=x86-64-v3"))) void name##_8(const Arguments& arguments) {  \
    body<8>(arguments);                                                                  \
  }                                                                                      \
  void name##_4(const Arguments& arguments) { body<4>(arguments); }                      \
  }                                                                                      \
  void name(const Arguments& arguments) {                                                \
    if (finetune::kernels::vector_width() == 16) {                                       \
      name##_16(arguments);                                                              \
    } else if (finetune::kernels::vector_width() == 8) {                                 \
      name##_8(arguments);                                                               \
    } else {                                                                             \
      name##_4(arguments);                                                               \
    }                                                                                    \
  }
#else
#define FT_VECTOR_KERNEL(name, Arguments, body) \
  void name(const Arguments& arguments) { body<4>(arguments); }
#endif

namespace finetune::kernels {

// Returns how many floats a vector of this processor has: 16, 8 or 4.
inline int vector_width() {
#if defined(__x86_64__)
  static const int width = [] {
    const bool has_v3 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
                        __builtin_cpu_supports("bmi2") != 0;
    const bool has_v4 =
        has_v3 && __builtin_cpu_supports("avx512f") != 0 &&
        __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
        __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512cd") != 0;
    return has_v4 ? 16 : has_v3 ? 8 : 4;
  }();
  return width;
#else
  return 4;
#endif
}

}  // namespace finetune::kernels
