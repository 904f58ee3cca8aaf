// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/adamw_blocks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/loops/vector_clones.h"

namespace finetune::kernels {
namespace {

// Values of a quantization block of the dynamic format and of a group of the companded one.
constexpr int kDynamic = 256;
constexpr int kGroup = 128;

// Compares magnitudes as integers: this takes one instruction per vector, and NaN is the largest.
FT_INLINE float largest_magnitude(const float* values, int count) {
  uint32_t largest = 0;
  for (int i = 0; i < count; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(values[i]) & 0x7FFFFFFF;
    largest = magnitude > largest ? magnitude : largest;
  }
  return std::bit_cast<float>(largest);
}

// Finds the codes of the magnitudes of values / absmax (kernels/dynamic_map.h). Three loops, so
// that the first and the last vectorise and only the look-up does not.
FT_INLINE void nearest_codes(const float* values, float absmax, int count,
                             const uint32_t* __restrict__ buckets, uint32_t* codes) {
  const float inverse = 1.0F / absmax;
  uint32_t magnitudes[kDynamic];
  uint32_t entries[kDynamic];
  for (int i = 0; i < count; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(values[i] * inverse) & 0x7FFFFFFF;
    uint32_t bucket = magnitude >> 16;
    bucket = bucket < DynamicMap::kFirstBucket ? DynamicMap::kFirstBucket : bucket;
    bucket = bucket > DynamicMap::kLastBucket ? DynamicMap::kLastBucket : bucket;
    magnitudes[i] = magnitude;
    entries[i] = bucket - DynamicMap::kFirstBucket;
  }
#pragma GCC unroll 8
  for (int i = 0; i < count; ++i) entries[i] = buckets[entries[i]];
  for (int i = 0; i < count; ++i) {
    codes[i] = (entries[i] & 0xFF) + ((magnitudes[i] & 0xFFFF) >= entries[i] >> 8 ? 1U : 0U);
  }
}

// Codes of signed values. A block of zeros gets the code that bitsandbytes' search returns for 0 /
// 0.
FT_INLINE void encode_signed(const float* values, float absmax, int count, const uint32_t* buckets,
                             uint8_t* __restrict__ result) {
  if (absmax == 0.0F) {
    std::memset(result, 255, static_cast<size_t>(count));
    return;
  }
  uint32_t codes[kDynamic];
  nearest_codes(values, absmax, count, buckets, codes);
  for (int i = 0; i < count; ++i) {
    // Negative values have mirrored codes 254 - code; none becomes zero or less than the smallest
    // code.
    uint32_t mirrored = codes[i] < 128 ? 128 : codes[i];
    mirrored = 254 - (mirrored > 254 ? 254 : mirrored);
    const bool is_negative = std::bit_cast<uint32_t>(values[i]) >> 31 != 0;
    result[i] = static_cast<uint8_t>(is_negative ? mirrored : codes[i]);
  }
}

FT_INLINE void encode_unsigned(const float* values, float absmax, int count,
                               const uint32_t* buckets, uint8_t* __restrict__ result) {
  if (absmax == 0.0F) {
    std::memset(result, 0, static_cast<size_t>(count));
    return;
  }
  uint32_t codes[kDynamic];
  nearest_codes(values, absmax, count, buckets, codes);
  for (int i = 0; i < count; ++i) result[i] = static_cast<uint8_t>(codes[i]);
}

// Returns absmax of a block, but zero where 1 / absmax would overflow: such moments are far below
// every epsilon.
FT_INLINE float block_scale(const float* values, int count) {
  const float largest = largest_magnitude(values, count);
  return largest < std::numeric_limits<float>::min() ? 0.0F : largest;
}

FT_INLINE void encode_dynamic_block(const float* first, const float* second, int count,
                                    const DynamicBlock& state) {
  const float absmax1 = block_scale(first, count);
  const float absmax2 = block_scale(second, count);
  *state.absmax1 = absmax1;
  *state.absmax2 = absmax2;
  encode_signed(first, absmax1, count, signed_map().buckets.data(), state.state1);
  encode_unsigned(second, absmax2, count, unsigned_map().buckets.data(), state.state2);
}

// Loads eight codes at a time, because the number of loads limits the speed.
FT_INLINE void look_up(const uint8_t* codes, const float* __restrict__ map, int count,
                       float* __restrict__ values) {
  int i = 0;
  if constexpr (std::endian::native == std::endian::little) {
    for (; i + 8 <= count; i += 8) {
      uint64_t eight = 0;
      std::memcpy(&eight, codes + i, sizeof(eight));
#pragma GCC unroll 8
      for (int k = 0; k < 8; ++k) values[i + k] = map[eight >> 8 * k & 0xFF];
    }
  }
  for (; i < count; ++i) values[i] = map[codes[i]];
}

FT_INLINE void decode_dynamic_block(const DynamicBlock& state, int count, float* __restrict__ first,
                                    float* __restrict__ second) {
  const float absmax1 = *state.absmax1;
  const float absmax2 = *state.absmax2;
  look_up(state.state1, signed_map().values.data(), count, first);
  look_up(state.state2, unsigned_map().values.data(), count, second);
  for (int i = 0; i < count; ++i) first[i] *= absmax1;
  for (int i = 0; i < count; ++i) second[i] *= absmax2;
}

FT_INLINE DynamicBlock from(const DynamicBlock& state, int64_t first) {
  return {state.state1 + first, state.state2 + first, state.absmax1 + first / kDynamic,
          state.absmax2 + first / kDynamic};
}

FT_INLINE CompandedBlock from(const CompandedBlock& state, int64_t first) {
  return {state.exp_avg + first, state.exp_avg_sq + first, state.exp_avg_scale + first / kGroup,
          state.exp_avg_sq_scale + first / kGroup};
}

// One AdamW step in bitsandbytes' order of operations: v = beta2 v + (1 - beta2) g^2, m = beta1 m +
// (1 - beta1) g, w = (w + step_size m / (sqrt(v) + epsilon)) decay. As there, a non-finite gradient
// leaves the weight and zeroes the moments.
FT_INLINE void update_dynamic_block(float* __restrict__ weight, const float* __restrict__ gradient,
                                    int count, const DynamicBlock& state,
                                    const BitsAndBytesNumbers& numbers) {
  const BitsAndBytesNumbers n = numbers;
  float first[kDynamic];
  float second[kDynamic];
  decode_dynamic_block(state, count, first, second);
  for (int i = 0; i < count; ++i) {
    const float g = gradient[i];
    const bool is_finite = (std::bit_cast<uint32_t>(g) & 0x7F800000) != 0x7F800000;
    const float v = second[i] * n.beta2 + n.gradient2 * g * g;
    const float m = first[i] * n.beta1 + n.gradient1 * g;
    const float w = (weight[i] + n.step_size * (m / (std::sqrt(v) + n.epsilon))) * n.decay;
    weight[i] = is_finite ? w : weight[i];
    first[i] = is_finite ? m : 0.0F;
    second[i] = is_finite ? v : 0.0F;
  }
  encode_dynamic_block(first, second, count, state);
}

// Rounds to the nearest integer, ties to even, and returns it in the lowest bits. Requires |x| <
// 2^22.
FT_INLINE uint32_t nearest_integer(float x) { return std::bit_cast<uint32_t>(x + 0x1.8p23F); }

// The codes are 127 f(m / max |m|) in 8 bits with f(x) = 2 x / (1 + |x|), which spends more codes
// on small values, and 255 sqrt(v) / max sqrt(v). `roots` are the square roots sqrt(v).
FT_INLINE void encode_companded_group(const float* first, const float* roots, int count,
                                      const CompandedBlock& state) {
  const float scale1 = largest_magnitude(first, count);
  const float scale2 = largest_magnitude(roots, count);
  *state.exp_avg_scale = scale1;
  *state.exp_avg_sq_scale = scale2;
  const float inverse2 = scale2 > 0.0F ? 255.0F / scale2 : 0.0F;
  for (int i = 0; i < count; ++i) {
    // 254 m / (scale1 + |m|) is 127 f(m / scale1) with one division; the lower bound is for groups
    // of zeros.
    const float sum = std::max(scale1 + std::abs(first[i]), std::numeric_limits<float>::min());
    state.exp_avg[i] = static_cast<int8_t>(nearest_integer(254.0F * first[i] / sum) & 0xFF);
  }
  for (int i = 0; i < count; ++i) {
    state.exp_avg_sq[i] = static_cast<uint8_t>(nearest_integer(roots[i] * inverse2) & 0xFF);
  }
}

// The inverse of encode_companded_group(): m = q / (254 - |q|) scale1, v = (q scale2 / 255)^2.
FT_INLINE void decode_companded_group(const CompandedBlock& state, int count, float* first,
                                      float* second) {
  const float scale1 = *state.exp_avg_scale;
  const float unit2 = *state.exp_avg_sq_scale / 255.0F;
  for (int i = 0; i < count; ++i) {
    const auto q = static_cast<float>(state.exp_avg[i]);
    first[i] = q / (254.0F - std::abs(q)) * scale1;
  }
  for (int i = 0; i < count; ++i) {
    const float root = static_cast<float>(state.exp_avg_sq[i]) * unit2;
    second[i] = root * root;
  }
}

// One step of torch's AdamW: m += (1 - beta1) (g - m), v = beta2 v + (1 - beta2) g^2, w = decay w +
// step_size m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon).
FT_INLINE void update_companded_group(float* __restrict__ weight,
                                      const float* __restrict__ gradient, int count,
                                      const CompandedBlock& state, const AdamWNumbers& numbers) {
  const AdamWNumbers n = numbers;
  float first[kGroup];
  float second[kGroup];
  decode_companded_group(state, count, first, second);
  for (int i = 0; i < count; ++i) {
    const float g = gradient[i];
    const float m = first[i] + n.gradient1 * (g - first[i]);
    const float root = std::sqrt(n.beta2 * second[i] + n.gradient2 * g * g);
    weight[i] = weight[i] * n.decay + n.step_size * m / (root * n.correction + n.epsilon);
    first[i] = m;
    second[i] = root;
  }
  encode_companded_group(first, second, count, state);
}

// Full blocks are a separate call: with a constant count their loops have no remainders.
FT_INLINE void update_dynamic_blocks(const WeightBlock& block, const DynamicBlock& state,
                                     const BitsAndBytesNumbers& numbers) {
  int64_t first = 0;
  for (; first + kDynamic <= block.count; first += kDynamic) {
    update_dynamic_block(block.weight + first, block.gradient + first, kDynamic, from(state, first),
                         numbers);
  }
  if (first < block.count) {
    update_dynamic_block(block.weight + first, block.gradient + first,
                         static_cast<int>(block.count - first), from(state, first), numbers);
  }
}

FT_INLINE void update_wide_values(const WeightBlock& block, float* __restrict__ state1,
                                  float* __restrict__ state2, const BitsAndBytesNumbers& numbers) {
  const BitsAndBytesNumbers n = numbers;
  float* __restrict__ weight = block.weight;
  const float* __restrict__ gradient = block.gradient;
  for (int64_t i = 0; i < block.count; ++i) {
    const float g = gradient[i];
    const float m = state1[i] * n.beta1 + n.gradient1 * g;
    const float v = state2[i] * n.beta2 + n.gradient2 * (g * g);
    state1[i] = m;
    state2[i] = v;
    weight[i] = (weight[i] + n.step_size * (m / (std::sqrt(v) + n.epsilon))) * n.decay;
  }
}

FT_INLINE void update_companded_groups(const WeightBlock& block, const CompandedBlock& state,
                                       const AdamWNumbers& numbers) {
  int64_t first = 0;
  for (; first + kGroup <= block.count; first += kGroup) {
    update_companded_group(block.weight + first, block.gradient + first, kGroup, from(state, first),
                           numbers);
  }
  if (first < block.count) {
    update_companded_group(block.weight + first, block.gradient + first,
                           static_cast<int>(block.count - first), from(state, first), numbers);
  }
}

}  // namespace

FT_CLONES void update_dynamic(const WeightBlock& block, const DynamicBlock& state,
                              const BitsAndBytesNumbers& numbers) {
  update_dynamic_blocks(block, state, numbers);
}

FT_CLONES void update_wide(const WeightBlock& block, float* state1, float* state2,
                           const BitsAndBytesNumbers& numbers) {
  update_wide_values(block, state1, state2, numbers);
}

FT_CLONES void update_companded(const WeightBlock& block, const CompandedBlock& state,
                                const AdamWNumbers& numbers) {
  update_companded_groups(block, state, numbers);
}

void update_dynamic_portable(const WeightBlock& block, const DynamicBlock& state,
                             const BitsAndBytesNumbers& numbers) {
  update_dynamic_blocks(block, state, numbers);
}

void update_wide_portable(const WeightBlock& block, float* state1, float* state2,
                          const BitsAndBytesNumbers& numbers) {
  update_wide_values(block, state1, state2, numbers);
}

void update_companded_portable(const WeightBlock& block, const CompandedBlock& state,
                               const AdamWNumbers& numbers) {
  update_companded_groups(block, state, numbers);
}

void encode_dynamic(const float* exp_avg, const float* exp_avg_sq, int64_t count,
                    const DynamicBlock& state) {
  for (int64_t first = 0; first < count; first += kDynamic) {
    const auto some = static_cast<int>(std::min<int64_t>(kDynamic, count - first));
    encode_dynamic_block(exp_avg + first, exp_avg_sq + first, some, from(state, first));
  }
}

void decode_dynamic(const DynamicBlock& state, int64_t count, float* exp_avg, float* exp_avg_sq) {
  for (int64_t first = 0; first < count; first += kDynamic) {
    const auto some = static_cast<int>(std::min<int64_t>(kDynamic, count - first));
    decode_dynamic_block(from(state, first), some, exp_avg + first, exp_avg_sq + first);
  }
}

void encode_companded(const float* exp_avg, const float* exp_avg_sq, int64_t count,
                      const CompandedBlock& state) {
  for (int64_t first = 0; first < count; first += kGroup) {
    const auto some = static_cast<int>(std::min<int64_t>(kGroup, count - first));
    float roots[kGroup];
    for (int i = 0; i < some; ++i) roots[i] = std::sqrt(exp_avg_sq[first + i]);
    encode_companded_group(exp_avg + first, roots, some, from(state, first));
  }
}

void decode_companded(const CompandedBlock& state, int64_t count, float* exp_avg,
                      float* exp_avg_sq) {
  for (int64_t first = 0; first < count; first += kGroup) {
    const auto some = static_cast<int>(std::min<int64_t>(kGroup, count - first));
    decode_companded_group(from(state, first), some, exp_avg + first, exp_avg_sq + first);
  }
}

}  // namespace finetune::kernels
