// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>

namespace finetune::kernels {

constexpr int kPhiloxBlocks = 16;                   // computed at a time
constexpr int kDropoutNumbers = 4 * kPhiloxBlocks;  // random numbers in them

// The key and the counters of the random numbers of one row's dropout (finetune/kernels/dropout.h).
struct DropoutRow {
  uint32_t row;       // h * 2^16 + t
  uint32_t position;  // index of the sample in the effective batch
  uint32_t layer_and_site;
  std::array<uint32_t, 2> key;
  uint32_t threshold;
  float scale;
  uint32_t first_block = 0;  // first block of four elements, within the row
};

// factors[e] = 0 or scale, for element 4 first_block + e of the row. Writes whole groups of
// kDropoutNumbers: up to the next multiple after `count`.
void dropout_factors(const DropoutRow& row, int64_t count, float* factors);

// Writes the four words of `count` Philox blocks with the counters (b, b >> 32, 0, 0), b =
// first_block, first_block + 1, ... Requires: count is a multiple of kPhiloxBlocks.
void philox_words(uint64_t first_block, uint64_t key, int64_t count, uint32_t* words);

// The implementations with AVX2 (false where the processor lacks it) and with plain loops; the
// tests compare them.
bool dropout_factors_avx2(const DropoutRow& row, int64_t count, float* factors);
bool philox_words_avx2(uint64_t first_block, uint64_t key, int64_t count, uint32_t* words);
void dropout_factors_portable(const DropoutRow& row, int64_t count, float* factors);
void philox_words_portable(uint64_t first_block, uint64_t key, int64_t count, uint32_t* words);

}  // namespace finetune::kernels
