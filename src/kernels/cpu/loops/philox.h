// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>

namespace finetune::kernels {

constexpr int kPhiloxBlocks = 16;                   // that are made side by side
constexpr int kDropoutNumbers = 4 * kPhiloxBlocks;  // and the numbers in them

// What one row of a tensor draws its dropout from (finetune/kernels/dropout.h).
struct DropoutRow {
  uint32_t row;    // h * 2^16 + t
  uint32_t place;  // of the sample in the effective batch
  uint32_t layer_and_site;
  std::array<uint32_t, 2> key;
  uint32_t threshold;
  float scale;
  uint32_t first_block = 0;  // of four elements each: where in the row to begin
};

// factors[e] = 0 or scale, for element 4 first_block + e of the row. May write up to the next
// multiple of kDropoutNumbers behind `count`.
void dropout_factors(const DropoutRow& row, int64_t count, float* factors);

// The four words of each of the blocks with the counters (b, b >> 32, 0, 0), b = first_block,
// first_block + 1, ... Requires: count a multiple of kPhiloxBlocks.
void philox_words(uint64_t first_block, uint64_t key, int64_t count, uint32_t* words);

// Both by what not every processor has, false where this one has not, and in plain loops; the
// tests compare them.
bool dropout_factors_avx2(const DropoutRow& row, int64_t count, float* factors);
bool philox_words_avx2(uint64_t first_block, uint64_t key, int64_t count, uint32_t* words);
void dropout_factors_portable(const DropoutRow& row, int64_t count, float* factors);
void philox_words_portable(uint64_t first_block, uint64_t key, int64_t count, uint32_t* words);

}  // namespace finetune::kernels
