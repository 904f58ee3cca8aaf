// SPDX-License-Identifier: MIT
// Compiled for each generation of processors, without contraction: the bits are the same.
#include "finetune/kernels/ggml_blocks.h"

#include <c10/util/Half.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/cpu/loops/vector_clones.h"

namespace finetune {
namespace {

void put_scale(float scale, uint8_t* bytes) {
  const c10::Half half(scale);
  std::memcpy(bytes, &half, kGgmlScaleBytes);
}

// Of finite numbers the bits have the order of the magnitudes, and the maximum of integers is
// computed several at a time.
FT_INLINE int32_t largest_bits(const float* values, size_t count) {
  int32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<int32_t>(values[i]) & 0x7FFFFFFF);
  }
  return largest;
}

// Half away from zero, exactly, as roundf(). Requires: |x| < 2^30.
FT_INLINE int32_t rounded(float x) {
  const float magnitude = std::fabs(x);
  const auto whole = static_cast<int32_t>(magnitude);
  const int32_t nearest = whole + (magnitude - static_cast<float>(whole) >= 0.5F ? 1 : 0);
  return x < 0.0F ? -nearest : nearest;
}

}  // namespace

FT_CLONES float largest_of(const float* values, size_t count) {
  return std::bit_cast<float>(largest_bits(values, count));
}

FT_CLONES void encode_q8_0(const float* values, size_t blocks, uint8_t* bytes) {
  for (size_t block = 0; block < blocks; ++block, values += kGgmlBlock) {
    const float scale = std::bit_cast<float>(largest_bits(values, kGgmlBlock)) / 127.0F;
    const float inverse = scale == 0.0F ? 0.0F : 1.0F / scale;
    put_scale(scale, bytes);
    auto* const codes = reinterpret_cast<int8_t*>(bytes + kGgmlScaleBytes);
    for (size_t i = 0; i < kGgmlBlock; ++i) {
      codes[i] = static_cast<int8_t>(rounded(values[i] * inverse));
    }
    bytes += kGgmlScaleBytes + kGgmlBlock;
  }
}

FT_CLONES void encode_q4_0(const float* values, size_t blocks, uint8_t* bytes) {
  constexpr size_t kHalf = kGgmlBlock / 2;
  for (size_t block = 0; block < blocks; ++block, values += kGgmlBlock) {
    float extreme = 0.0F;  // the first of the largest magnitude
    for (size_t i = 0; i < kGgmlBlock; ++i) {
      if (std::fabs(values[i]) > std::fabs(extreme)) extreme = values[i];
    }
    const float scale = extreme / -8.0F;
    const float inverse = scale == 0.0F ? 0.0F : 1.0F / scale;
    put_scale(scale, bytes);
    int32_t codes[kGgmlBlock];
    for (size_t i = 0; i < kGgmlBlock; ++i) {
      codes[i] = std::min(static_cast<int32_t>(values[i] * inverse + 8.5F), 15);
    }
    for (size_t i = 0; i < kHalf; ++i) {
      bytes[kGgmlScaleBytes + i] = static_cast<uint8_t>(codes[i] | codes[i + kHalf] << 4);
    }
    bytes += kGgmlScaleBytes + kHalf;
  }
}

}  // namespace finetune
