// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/philox_cpu.h"
#include "kernels/vector_math.h"

// Rows are worked on in blocks that lie in registers or the nearest cache: loops over a block have
// a constant count and nothing that could overlap, which is what the compiler needs.
namespace finetune::kernels {

constexpr int kBlock = kDropoutNumbers;
using Block = float[kBlock];

// What lies behind `count` is `rest`.
template <typename Storage>
FT_INLINE void load_block(const Storage* source, int64_t count, float rest, Block& block) {
  if (count >= kBlock) {
    for (int i = 0; i < kBlock; ++i) block[i] = widen(source[i]);
  } else {
    for (int i = 0; i < kBlock; ++i) block[i] = rest;
    for (int64_t i = 0; i < count; ++i) block[i] = widen(source[i]);
  }
}

template <typename Storage>
FT_INLINE void store_block(const Block& block, int64_t count, Storage* target) {
  if (count >= kBlock) {
    for (int i = 0; i < kBlock; ++i) store(target[i], block[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) store(target[i], block[i]);
  }
}

// target += block
FT_INLINE void add_block(const Block& block, int64_t count, float* target) {
  if (count >= kBlock) {
    for (int i = 0; i < kBlock; ++i) target[i] += block[i];
  } else {
    for (int64_t i = 0; i < count; ++i) target[i] += block[i];
  }
}

// What a tensor of this type gives back of a value.
template <typename Storage>
FT_INLINE void round_block(Block& block) {
  if constexpr (!std::is_same_v<Storage, float>) {
    for (int i = 0; i < kBlock; ++i) {
      Storage rounded;
      store(rounded, block[i]);
      block[i] = widen(rounded);
    }
  }
}

FT_INLINE float sum_of(const Block& block) {
  float lanes[16];
  for (int i = 0; i < 16; ++i)
    lanes[i] = block[i] + block[i + 16] + (block[i + 32] + block[i + 48]);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

FT_INLINE float maximum_of(const Block& block) { return *std::max_element(block, block + kBlock); }

}  // namespace finetune::kernels
