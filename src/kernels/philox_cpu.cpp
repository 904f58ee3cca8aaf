// SPDX-License-Identifier: MIT
#include "kernels/philox_cpu.h"

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 takes the "undefined" arguments of its own AVX512 intrinsics for mistakes (its bug
// 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#endif

// Philox 4x32-10 of blocks that differ in their first counter word only. By intrinsics, because no
// compiler turns plain loops into the one multiplication that this needs: of the low halves of
// 64-bit lanes, whose high halves may hold anything.
namespace finetune::kernels {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

#if defined(__x86_64__)

// Eight blocks a set. Lanes are ordered so that words come out in the order of elements.
__attribute__((target("avx512f"))) void factors_avx512(const DropoutRow& row, int64_t count,
                                                       float* factors) {
  const __m512i multiplier0 = _mm512_set1_epi64(kMultiplier0);
  const __m512i multiplier1 = _mm512_set1_epi64(kMultiplier1);
  const __m512i threshold = _mm512_set1_epi32(static_cast<int>(row.threshold));
  const __m512 scale = _mm512_set1_ps(row.scale);
  const __m512i low = _mm512_set1_epi64(0xFFFFFFFF);
  const __m512i order = _mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0);
  for (int64_t element = 0; element < count; element += kDropoutNumbers) {
    __m512i c0[2];
    __m512i c1[2];
    __m512i c2[2];
    __m512i c3[2];
    for (int set = 0; set < 2; ++set) {
      c0[set] = _mm512_add_epi64(order, _mm512_set1_epi64(element / 4 + 8 * set));
      c1[set] = _mm512_set1_epi64(row.row);
      c2[set] = _mm512_set1_epi64(row.place);
      c3[set] = _mm512_set1_epi64(row.layer_and_site);
    }
    uint32_t key0 = row.key[0];
    uint32_t key1 = row.key[1];
    for (int round = 0; round < kRounds; ++round) {
      const __m512i k0 = _mm512_set1_epi64(key0);
      const __m512i k1 = _mm512_set1_epi64(key1);
      for (int set = 0; set < 2; ++set) {
        const __m512i product0 = _mm512_mul_epu32(c0[set], multiplier0);
        const __m512i product1 = _mm512_mul_epu32(c2[set], multiplier1);
        // 0x96: the exclusive or of three
        c0[set] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(product1, 32), c1[set], k0, 0x96);
        c1[set] = product1;
        c2[set] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(product0, 32), c3[set], k1, 0x96);
        c3[set] = product0;
      }
      key0 += kWeyl0;
      key1 += kWeyl1;
    }
    for (int set = 0; set < 2; ++set) {
      const __m512i words01 =
          _mm512_or_epi64(_mm512_and_epi64(c0[set], low), _mm512_slli_epi64(c1[set], 32));
      const __m512i words23 =
          _mm512_or_epi64(_mm512_and_epi64(c2[set], low), _mm512_slli_epi64(c3[set], 32));
      float* target = factors + element + 32 * set;
      const __m512i first = _mm512_unpacklo_epi64(words01, words23);
      const __m512i second = _mm512_unpackhi_epi64(words01, words23);
      _mm512_storeu_ps(target,
                       _mm512_maskz_mov_ps(_mm512_cmpge_epu32_mask(first, threshold), scale));
      _mm512_storeu_ps(target + 16,
                       _mm512_maskz_mov_ps(_mm512_cmpge_epu32_mask(second, threshold), scale));
    }
  }
}

__attribute__((target("avx2"))) inline __m256 factors_of(__m256i words, __m256i threshold,
                                                         __m256 scale) {
  const __m256i kept = _mm256_cmpeq_epi32(_mm256_max_epu32(words, threshold), words);
  return _mm256_and_ps(_mm256_castsi256_ps(kept), scale);
}

// Four blocks a set.
__attribute__((target("avx2"))) void factors_avx2(const DropoutRow& row, int64_t count,
                                                  float* factors) {
  const __m256i multiplier0 = _mm256_set1_epi64x(kMultiplier0);
  const __m256i multiplier1 = _mm256_set1_epi64x(kMultiplier1);
  const __m256i threshold = _mm256_set1_epi32(static_cast<int>(row.threshold));
  const __m256 scale = _mm256_set1_ps(row.scale);
  const __m256i low = _mm256_set1_epi64x(0xFFFFFFFF);
  const __m256i order = _mm256_set_epi64x(3, 1, 2, 0);
  for (int64_t element = 0; element < count; element += kDropoutNumbers / 2) {
    __m256i c0[2];
    __m256i c1[2];
    __m256i c2[2];
    __m256i c3[2];
    for (int set = 0; set < 2; ++set) {
      c0[set] = _mm256_add_epi64(order, _mm256_set1_epi64x(element / 4 + 4 * set));
      c1[set] = _mm256_set1_epi64x(row.row);
      c2[set] = _mm256_set1_epi64x(row.place);
      c3[set] = _mm256_set1_epi64x(row.layer_and_site);
    }
    uint32_t key0 = row.key[0];
    uint32_t key1 = row.key[1];
    for (int round = 0; round < kRounds; ++round) {
      const __m256i k0 = _mm256_set1_epi64x(key0);
      const __m256i k1 = _mm256_set1_epi64x(key1);
      for (int set = 0; set < 2; ++set) {
        const __m256i product0 = _mm256_mul_epu32(c0[set], multiplier0);
        const __m256i product1 = _mm256_mul_epu32(c2[set], multiplier1);
        c0[set] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product1, 32), c1[set]), k0);
        c1[set] = product1;
        c2[set] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product0, 32), c3[set]), k1);
        c3[set] = product0;
      }
      key0 += kWeyl0;
      key1 += kWeyl1;
    }
    for (int set = 0; set < 2; ++set) {
      const __m256i words01 =
          _mm256_or_si256(_mm256_and_si256(c0[set], low), _mm256_slli_epi64(c1[set], 32));
      const __m256i words23 =
          _mm256_or_si256(_mm256_and_si256(c2[set], low), _mm256_slli_epi64(c3[set], 32));
      float* target = factors + element + 16 * set;
      _mm256_storeu_ps(target,
                       factors_of(_mm256_unpacklo_epi64(words01, words23), threshold, scale));
      _mm256_storeu_ps(target + 8,
                       factors_of(_mm256_unpackhi_epi64(words01, words23), threshold, scale));
    }
  }
}

#endif

using FactorsFunction = void (*)(const DropoutRow&, int64_t, float*);

FactorsFunction choose_factors() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") != 0) return factors_avx512;
  if (__builtin_cpu_supports("avx2") != 0) return factors_avx2;
#endif
  return dropout_factors_portable;
}

}  // namespace

void dropout_factors(const DropoutRow& row, int64_t count, float* factors) {
  static const FactorsFunction function = choose_factors();
  function(row, count, factors);
}

bool dropout_factors_avx2(const DropoutRow& row, int64_t count, float* factors) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") == 0) return false;
  factors_avx2(row, count, factors);
  return true;
#else
  return false;
#endif
}

void dropout_factors_portable(const DropoutRow& row, int64_t count, float* factors) {
  for (int64_t element = 0; element < count; element += 4) {
    std::array<uint32_t, 4> c = {static_cast<uint32_t>(element / 4), row.row, row.place,
                                 row.layer_and_site};
    uint32_t key0 = row.key[0];
    uint32_t key1 = row.key[1];
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t product0 = uint64_t{kMultiplier0} * c[0];
      const uint64_t product1 = uint64_t{kMultiplier1} * c[2];
      c = {static_cast<uint32_t>(product1 >> 32) ^ c[1] ^ key0, static_cast<uint32_t>(product1),
           static_cast<uint32_t>(product0 >> 32) ^ c[3] ^ key1, static_cast<uint32_t>(product0)};
      key0 += kWeyl0;
      key1 += kWeyl1;
    }
    for (const uint32_t word : c) *factors++ = word < row.threshold ? 0.0F : row.scale;
  }
}

}  // namespace finetune::kernels
