// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/nf4.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "finetune/kernels/nf4.h"
#include "kernels/cpu/loops/vector_clones.h"

namespace finetune::kernels {
namespace {

constexpr float kLeastScale = 1e-38F;

FT_INLINE float largest_magnitude(const float* values, int64_t count) {
  int32_t largest = 0;  // of finite numbers the bits have the order of the magnitudes
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<int32_t>(values[i]) & 0x7FFFFFFF);
  }
  return std::bit_cast<float>(largest);
}

// How many midpoints between codes are below each value: a tie takes the lower code.
FT_INLINE void find_codes(const float* scaled, const float* midpoints, int32_t* codes) {
  for (int64_t i = 0; i < kNf4Block; ++i) codes[i] = 0;
  for (int k = 0; k < 15; ++k) {
    for (int64_t i = 0; i < kNf4Block; ++i) codes[i] += scaled[i] > midpoints[k] ? 1 : 0;
  }
}

FT_INLINE void pack(const int32_t* codes, int64_t bytes, uint8_t* packed) {
  for (int64_t i = 0; i < bytes; ++i) {
    packed[i] = static_cast<uint8_t>(codes[2 * i] << 4 | codes[2 * i + 1]);
  }
}

}  // namespace

FT_CLONES void quantize_nf4_blocks(const float* values, int64_t count,
                                   const std::array<float, 16>& map, uint8_t* codes,
                                   float* scales) {
  float midpoints[15];
  for (int k = 0; k < 15; ++k) midpoints[k] = (map[k] + map[k + 1]) / 2.0F;
  float scaled[kNf4Block];
  int32_t found[kNf4Block];
  for (; count >= kNf4Block; count -= kNf4Block) {
    const float scale = largest_magnitude(values, kNf4Block);
    const float inverse = 1.0F / std::max(scale, kLeastScale);
    for (int64_t i = 0; i < kNf4Block; ++i) scaled[i] = values[i] * inverse;
    find_codes(scaled, midpoints, found);
    pack(found, kNf4Block / 2, codes);
    *scales++ = scale;
    values += kNf4Block;
    codes += kNf4Block / 2;
  }
  if (count == 0) return;
  const float scale = std::max(largest_magnitude(values, count), kLeastScale);
  for (int64_t i = 0; i < kNf4Block; ++i) scaled[i] = i < count ? values[i] / scale : 0.0F;
  find_codes(scaled, midpoints, found);
  pack(found, (count + 1) / 2, codes);
  *scales = scale;
}

FT_CLONES void dequantize_nf4_values(const uint8_t* codes, const float* scales,
                                     const Nf4Pairs& pairs, int64_t first, int64_t count,
                                     float* values) {
  float block[kNf4Block];
  while (count > 0) {
    const int64_t number = first / kNf4Block;
    const int64_t skipped = first % kNf4Block;
    const int64_t some = std::min(kNf4Block - skipped, count);
    const float scale = scales[number];
    if (some == kNf4Block) {
      const uint8_t* bytes = codes + number * (kNf4Block / 2);
      for (int64_t i = 0; i < kNf4Block / 2; ++i) std::memcpy(block + 2 * i, &pairs[bytes[i]], 8);
      for (int64_t i = 0; i < kNf4Block; ++i) values[i] = block[i] * scale;
    } else {
      for (int64_t i = 0; i < some; ++i) {
        values[i] = pairs[codes[(first + i) / 2]][(first + i) % 2] * scale;
      }
    }
    values += some;
    first += some;
    count -= some;
  }
}

}  // namespace finetune::kernels
