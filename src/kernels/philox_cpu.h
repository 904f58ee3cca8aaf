// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>

#include "kernels/vector_clones.h"

namespace finetune::kernels {

constexpr int kPhiloxLanes = 16;                   // Philox blocks made side by side
constexpr int kDropoutNumbers = 4 * kPhiloxLanes;  // and the numbers in them

// What one row of a tensor draws its dropout from.
struct DropoutRow {
  uint32_t row;    // h * 2^16 + t
  uint32_t place;  // of the sample in the effective batch
  uint32_t layer_and_site;
  std::array<uint32_t, 2> key;
  uint32_t threshold;
  float scale;
};

// The factors, 0 or scale, of elements first_column ... first_column + 63 of a row. Requires:
// first_column a multiple of 4. Sixteen blocks of Philox 4x32-10 differ in their first word only.
FT_INLINE void dropout_factors(const DropoutRow& row, int64_t first_column, float* factors) {
  uint32_t word[4][kPhiloxLanes];
  for (int i = 0; i < kPhiloxLanes; ++i) {
    word[0][i] = static_cast<uint32_t>(first_column / 4) + static_cast<uint32_t>(i);
    word[1][i] = row.row;
    word[2][i] = row.place;
    word[3][i] = row.layer_and_site;
  }
  uint32_t key0 = row.key[0];
  uint32_t key1 = row.key[1];
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kPhiloxLanes; ++i) {
      const uint64_t product0 = uint64_t{0xD2511F53} * word[0][i];
      const uint64_t product1 = uint64_t{0xCD9E8D57} * word[2][i];
      word[0][i] = static_cast<uint32_t>(product1 >> 32) ^ word[1][i] ^ key0;
      word[1][i] = static_cast<uint32_t>(product1);
      word[2][i] = static_cast<uint32_t>(product0 >> 32) ^ word[3][i] ^ key1;
      word[3][i] = static_cast<uint32_t>(product0);
    }
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  for (int w = 0; w < 4; ++w) {
    for (int i = 0; i < kPhiloxLanes; ++i) {
      factors[4 * i + w] = word[w][i] < row.threshold ? 0.0F : row.scale;
    }
  }
}

}  // namespace finetune::kernels
