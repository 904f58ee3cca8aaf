// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/philox.h"

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns about the "undefined" arguments of its AVX512 intrinsics (its bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#endif

// Philox 4x32-10 of blocks whose counters differ only in the first words. Written with intrinsics,
// because no compiler recognises the one multiplication that this needs: of the low halves of
// 64-bit lanes, whose high halves may hold anything.
namespace finetune::kernels {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

#if defined(__x86_64__)
#define FT_AVX512 __attribute__((target("avx512f"), always_inline)) inline
#define FT_AVX2 __attribute__((target("avx2"), always_inline)) inline

// Two sets of eight blocks, interleaved because a multiplication takes several cycles.
struct Blocks512 {
  __m512i word[4][2];
};

// Numbers the blocks of a set, in the order that makes the words come out in block order.
FT_AVX512 __m512i lanes512(int64_t set) {
  return _mm512_add_epi64(_mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0), _mm512_set1_epi64(8 * set));
}

// One round with key (k0, k1): c0' = high(M1 c2) ^ c1 ^ k0, c1' = low(M1 c2),
// c2' = high(M0 c0) ^ c3 ^ k1, c3' = low(M0 c0). Then the key grows by the Weyl constants.
FT_AVX512 void run_rounds(Blocks512& blocks, uint32_t key0, uint32_t key1) {
  auto& [c0, c1, c2, c3] = blocks.word;
  const __m512i multiplier0 = _mm512_set1_epi64(kMultiplier0);
  const __m512i multiplier1 = _mm512_set1_epi64(kMultiplier1);
  for (int round = 0; round < kRounds; ++round) {
    const __m512i k0 = _mm512_set1_epi64(key0);
    const __m512i k1 = _mm512_set1_epi64(key1);
    for (int64_t set = 0; set < 2; ++set) {
      const __m512i product0 = _mm512_mul_epu32(c0[set], multiplier0);
      const __m512i product1 = _mm512_mul_epu32(c2[set], multiplier1);
      // 0x96 is the exclusive or of three values.
      c0[set] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(product1, 32), c1[set], k0, 0x96);
      c1[set] = product1;
      c2[set] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(product0, 32), c3[set], k1, 0x96);
      c3[set] = product0;
    }
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
}

// Combines a set's words into two vectors, its first and second half in block order.
FT_AVX512 void in_order(const Blocks512& blocks, int64_t set, __m512i* halves) {
  const auto& [c0, c1, c2, c3] = blocks.word;
  const __m512i low = _mm512_set1_epi64(0xFFFFFFFF);
  const __m512i words01 =
      _mm512_or_epi64(_mm512_and_epi64(c0[set], low), _mm512_slli_epi64(c1[set], 32));
  const __m512i words23 =
      _mm512_or_epi64(_mm512_and_epi64(c2[set], low), _mm512_slli_epi64(c3[set], 32));
  halves[0] = _mm512_unpacklo_epi64(words01, words23);
  halves[1] = _mm512_unpackhi_epi64(words01, words23);
}

// Factors of one dropout row: scale where the word is at least the threshold, otherwise 0. The
// counter is (block, row, position, layer and site).
__attribute__((target("avx512f"))) void factors_avx512(const DropoutRow& row, int64_t count,
                                                       float* factors) {
  const __m512i threshold = _mm512_set1_epi32(static_cast<int>(row.threshold));
  const __m512 scale = _mm512_set1_ps(row.scale);
  for (int64_t element = 0; element < count; element += kDropoutNumbers) {
    Blocks512 blocks;
    for (int64_t set = 0; set < 2; ++set) {
      blocks.word[0][set] =
          _mm512_add_epi64(lanes512(set), _mm512_set1_epi64(row.first_block + element / 4));
      blocks.word[1][set] = _mm512_set1_epi64(row.row);
      blocks.word[2][set] = _mm512_set1_epi64(row.position);
      blocks.word[3][set] = _mm512_set1_epi64(row.layer_and_site);
    }
    run_rounds(blocks, row.key[0], row.key[1]);
    for (int64_t set = 0; set < 2; ++set) {
      __m512i halves[2];
      in_order(blocks, set, halves);
      for (int64_t half = 0; half < 2; ++half) {
        const __mmask16 kept = _mm512_cmpge_epu32_mask(halves[half], threshold);
        _mm512_storeu_ps(factors + element + 32 * set + 16 * half,
                         _mm512_maskz_mov_ps(kept, scale));
      }
    }
  }
}

// Words of the blocks from first_block on. The counter is the 64-bit number of the block and two
// zeros.
__attribute__((target("avx512f"))) void words_avx512(uint64_t first_block, uint64_t key,
                                                     int64_t count, uint32_t* words) {
  for (int64_t block = 0; block < count; block += kPhiloxBlocks) {
    Blocks512 blocks;
    const auto first = static_cast<int64_t>(first_block + static_cast<uint64_t>(block));
    for (int64_t set = 0; set < 2; ++set) {
      blocks.word[0][set] = _mm512_add_epi64(lanes512(set), _mm512_set1_epi64(first));
      blocks.word[1][set] = _mm512_srli_epi64(blocks.word[0][set], 32);
      blocks.word[2][set] = blocks.word[3][set] = _mm512_setzero_si512();
    }
    run_rounds(blocks, static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32));
    for (int64_t set = 0; set < 2; ++set) {
      __m512i halves[2];
      in_order(blocks, set, halves);
      for (int64_t half = 0; half < 2; ++half) {
        _mm512_storeu_si512(words + 4 * block + 32 * set + 16 * half, halves[half]);
      }
    }
  }
}

// Two sets of four blocks, as above.
struct Blocks256 {
  __m256i word[4][2];
};

// Block numbers in the order 0, 2, 1, 3, because AVX2 unpacks within 128-bit halves.
FT_AVX2 __m256i lanes256(int64_t set) {
  return _mm256_add_epi64(_mm256_set_epi64x(3, 1, 2, 0), _mm256_set1_epi64x(4 * set));
}

FT_AVX2 void run_rounds(Blocks256& blocks, uint32_t key0, uint32_t key1) {
  auto& [c0, c1, c2, c3] = blocks.word;
  const __m256i multiplier0 = _mm256_set1_epi64x(kMultiplier0);
  const __m256i multiplier1 = _mm256_set1_epi64x(kMultiplier1);
  for (int round = 0; round < kRounds; ++round) {
    const __m256i k0 = _mm256_set1_epi64x(key0);
    const __m256i k1 = _mm256_set1_epi64x(key1);
    for (int64_t set = 0; set < 2; ++set) {
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
}

FT_AVX2 void in_order(const Blocks256& blocks, int64_t set, __m256i* halves) {
  const auto& [c0, c1, c2, c3] = blocks.word;
  const __m256i low = _mm256_set1_epi64x(0xFFFFFFFF);
  const __m256i words01 =
      _mm256_or_si256(_mm256_and_si256(c0[set], low), _mm256_slli_epi64(c1[set], 32));
  const __m256i words23 =
      _mm256_or_si256(_mm256_and_si256(c2[set], low), _mm256_slli_epi64(c3[set], 32));
  halves[0] = _mm256_unpacklo_epi64(words01, words23);
  halves[1] = _mm256_unpackhi_epi64(words01, words23);
}

__attribute__((target("avx2"))) void factors_avx2(const DropoutRow& row, int64_t count,
                                                  float* factors) {
  const __m256i threshold = _mm256_set1_epi32(static_cast<int>(row.threshold));
  const __m256 scale = _mm256_set1_ps(row.scale);
  for (int64_t element = 0; element < count; element += kDropoutNumbers / 2) {
    Blocks256 blocks;
    for (int64_t set = 0; set < 2; ++set) {
      blocks.word[0][set] =
          _mm256_add_epi64(lanes256(set), _mm256_set1_epi64x(row.first_block + element / 4));
      blocks.word[1][set] = _mm256_set1_epi64x(row.row);
      blocks.word[2][set] = _mm256_set1_epi64x(row.position);
      blocks.word[3][set] = _mm256_set1_epi64x(row.layer_and_site);
    }
    run_rounds(blocks, row.key[0], row.key[1]);
    for (int64_t set = 0; set < 2; ++set) {
      __m256i halves[2];
      in_order(blocks, set, halves);
      for (int64_t half = 0; half < 2; ++half) {
        const __m256i kept =
            _mm256_cmpeq_epi32(_mm256_max_epu32(halves[half], threshold), halves[half]);
        _mm256_storeu_ps(factors + element + 16 * set + 8 * half,
                         _mm256_and_ps(_mm256_castsi256_ps(kept), scale));
      }
    }
  }
}

__attribute__((target("avx2"))) void words_avx2(uint64_t first_block, uint64_t key, int64_t count,
                                                uint32_t* words) {
  for (int64_t block = 0; block < count; block += kPhiloxBlocks / 2) {
    Blocks256 blocks;
    const auto first = static_cast<int64_t>(first_block + static_cast<uint64_t>(block));
    for (int64_t set = 0; set < 2; ++set) {
      blocks.word[0][set] = _mm256_add_epi64(lanes256(set), _mm256_set1_epi64x(first));
      blocks.word[1][set] = _mm256_srli_epi64(blocks.word[0][set], 32);
      blocks.word[2][set] = blocks.word[3][set] = _mm256_setzero_si256();
    }
    run_rounds(blocks, static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32));
    for (int64_t set = 0; set < 2; ++set) {
      __m256i halves[2];
      in_order(blocks, set, halves);
      for (int64_t half = 0; half < 2; ++half) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + 4 * block + 16 * set + 8 * half),
                            halves[half]);
      }
    }
  }
}

#undef FT_AVX512
#undef FT_AVX2
#endif

struct Functions {
  void (*factors)(const DropoutRow&, int64_t, float*);
  void (*words)(uint64_t, uint64_t, int64_t, uint32_t*);
};

Functions choose_functions() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") != 0) return {factors_avx512, words_avx512};
  if (__builtin_cpu_supports("avx2") != 0) return {factors_avx2, words_avx2};
#endif
  return {dropout_factors_portable, philox_words_portable};
}

const Functions& functions() {
  static const Functions chosen = choose_functions();
  return chosen;
}

using Block = std::array<uint32_t, 4>;

Block philox(Block c, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * c[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * c[2];
    c = {static_cast<uint32_t>(product1 >> 32) ^ c[1] ^ key0, static_cast<uint32_t>(product1),
         static_cast<uint32_t>(product0 >> 32) ^ c[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return c;
}

}  // namespace

void dropout_factors(const DropoutRow& row, int64_t count, float* factors) {
  functions().factors(row, count, factors);
}

void philox_words(uint64_t first_block, uint64_t key, int64_t count, uint32_t* words) {
  functions().words(first_block, key, count, words);
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

bool philox_words_avx2(uint64_t first_block, uint64_t key, int64_t count, uint32_t* words) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") == 0) return false;
  words_avx2(first_block, key, count, words);
  return true;
#else
  return false;
#endif
}

void dropout_factors_portable(const DropoutRow& row, int64_t count, float* factors) {
  for (int64_t element = 0; element < count; element += 4) {
    const Block counter = {row.first_block + static_cast<uint32_t>(element / 4), row.row,
                           row.position, row.layer_and_site};
    for (const uint32_t word : philox(counter, row.key[0], row.key[1])) {
      *factors++ = word < row.threshold ? 0.0F : row.scale;
    }
  }
}

void philox_words_portable(uint64_t first_block, uint64_t key, int64_t count, uint32_t* words) {
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t block = first_block + static_cast<uint64_t>(i);
    const Block counter = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0, 0};
    for (const uint32_t word :
         philox(counter, static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32))) {
      *words++ = word;
    }
  }
}

}  // namespace finetune::kernels
