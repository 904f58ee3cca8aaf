// SPDX-License-Identifier: MIT
#include "kernels/dropout_cpu.h"

#include <algorithm>

namespace finetune::kernels {
namespace {

constexpr int kLanes = 16;  // Philox blocks made side by side: 64 numbers

// Sixteen blocks of Philox 4x32-10 that differ in their first counter word only.
struct Blocks {
  uint32_t word[4][kLanes];
};

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define FT_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FT_CLONES
#endif

inline __attribute__((always_inline)) void philox_blocks(Blocks& b, uint32_t first_block,
                                                         uint32_t c1, uint32_t c2, uint32_t c3,
                                                         std::array<uint32_t, 2> key) {
  for (int i = 0; i < kLanes; ++i) {
    b.word[0][i] = first_block + static_cast<uint32_t>(i);
    b.word[1][i] = c1;
    b.word[2][i] = c2;
    b.word[3][i] = c3;
  }
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kLanes; ++i) {
      const uint64_t product0 = uint64_t{0xD2511F53} * b.word[0][i];
      const uint64_t product1 = uint64_t{0xCD9E8D57} * b.word[2][i];
      b.word[0][i] = static_cast<uint32_t>(product1 >> 32) ^ b.word[1][i] ^ key[0];
      b.word[1][i] = static_cast<uint32_t>(product1);
      b.word[2][i] = static_cast<uint32_t>(product0 >> 32) ^ b.word[3][i] ^ key[1];
      b.word[3][i] = static_cast<uint32_t>(product0);
    }
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
}

}  // namespace

FT_CLONES void dropout_rows(const DropoutRows& rows) {
  for (int64_t r = rows.first_row; r < rows.last_row; ++r) {
    const int64_t in_sample = r % rows.rows_per_sample;
    const auto place = rows.first_place + static_cast<uint32_t>(r / rows.rows_per_sample);
    const auto row = static_cast<uint32_t>((in_sample / rows.rows_per_head) << 16 |
                                           in_sample % rows.rows_per_head);
    const float* input = rows.input + r * rows.columns;
    float* output = rows.output + r * rows.columns;
    for (int64_t column = 0; column < rows.columns; column += 4 * kLanes) {
      Blocks blocks;
      philox_blocks(blocks, static_cast<uint32_t>(column / 4), row, place, rows.layer_and_site,
                    rows.key);
      float factor[4 * kLanes];
      for (int w = 0; w < 4; ++w) {
        for (int i = 0; i < kLanes; ++i) {
          factor[4 * i + w] = blocks.word[w][i] < rows.threshold ? 0.0F : rows.scale;
        }
      }
      const int64_t count = std::min<int64_t>(4 * kLanes, rows.columns - column);
      for (int64_t i = 0; i < count; ++i) output[column + i] = input[column + i] * factor[i];
    }
  }
}

}  // namespace finetune::kernels
