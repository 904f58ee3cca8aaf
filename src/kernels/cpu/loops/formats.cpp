// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/formats.h"

#include <algorithm>
#include <bit>

#include "kernels/cpu/loops/philox.h"
#include "kernels/cpu/loops/vector_clones.h"

namespace finetune::kernels {
namespace {

constexpr int kBlocks = 4 * kPhiloxBlocks;  // of Philox, computed at a time
constexpr int kNumbers = 8 * kBlocks;       // 16-bit numbers in them

// Rounds to bfloat16 stochastically: adds a random 16-bit number to the bits of |x| and truncates
// them. It rounds up with the probability (x - lower) / (upper - lower), so the mean is x. A finite
// value stays finite.
FT_INLINE uint16_t round_with(float x, uint32_t number) {
  constexpr uint32_t kLargest = 0x7F7F0000;
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  const uint32_t finite = std::min(magnitude + number, kLargest | 0xFFFF);
  const uint32_t special = magnitude > 0x7F800000 ? 0x7FC00000U : magnitude;
  const uint32_t rounded = magnitude < 0x7F800000 ? finite : special;
  return static_cast<uint16_t>((rounded | (bits & 0x80000000)) >> 16);
}

FT_INLINE float widened(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Element i uses 16-bit number i % 8 of Philox block i / 8: two from each of its four words, the
// lower half first.
template <bool kAdd>
FT_INLINE void round_all(const float* values, uint16_t* target, int64_t count, uint64_t key,
                         uint64_t first_element) {
  int64_t done = 0;
  while (done < count) {
    const uint64_t element = first_element + static_cast<uint64_t>(done);
    uint32_t words[kNumbers / 2];
    philox_words(element / 8, key, kBlocks, words);
    uint32_t numbers[kNumbers];
    for (int i = 0; i < kNumbers / 2; ++i) {
      numbers[2 * i] = words[i] & 0xFFFF;
      numbers[2 * i + 1] = words[i] >> 16;
    }
    const auto skipped = static_cast<int64_t>(element % 8);
    const int64_t some = std::min<int64_t>(kNumbers - skipped, count - done);
    const float* value = values + done;
    uint16_t* result = target + done;
    for (int64_t i = 0; i < some; ++i) {
      const float x = kAdd ? widened(result[i]) + value[i] : value[i];
      result[i] = round_with(x, numbers[skipped + i]);
    }
    done += some;
  }
}

// Splits x into the nearest bfloat16 and the distance to it, in 1/127 of half a last place. In
// integers: between neighbours of one sign a difference of bits is a difference in units of the
// last place, subnormal numbers included.
FT_INLINE void split_one(float x, uint16_t& weight, int8_t& correction) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  const uint32_t nearest =
      std::min((magnitude + 0x7FFF + ((magnitude >> 16) & 1)) >> 16, uint32_t{0x7F7F});
  const auto distance = static_cast<int32_t>(magnitude) - static_cast<int32_t>(nearest << 16);
  // If rounding reached the next power of two, the last place of the result is twice as large.
  const int32_t half = (nearest << 16 >> 23) > (magnitude >> 23) && (magnitude >> 23) > 0 ? 16 : 15;
  const int32_t scaled = (127 * (distance < 0 ? -distance : distance) + (1 << (half - 1))) >> half;
  const int32_t size = std::min(scaled, 127);
  const bool negative = (distance < 0) != ((bits >> 31) != 0);
  const bool finite = magnitude < 0x7F800000;
  const uint32_t special = magnitude > 0x7F800000 ? 0x7FC0U : 0x7F80U;
  weight = static_cast<uint16_t>((finite ? nearest : special) | (bits >> 16 & 0x8000));
  correction = static_cast<int8_t>(finite ? (negative ? -size : size) : 0);
}

// weight + correction / 127 * half a last place of the weight, which is 2^(exponent - 8).
FT_INLINE float join_one(uint16_t weight, int8_t correction) {
  // 2^exponent. The exponent of infinity would make NaN of the correction, which is zero there.
  const uint32_t exponent = std::clamp<uint32_t>((weight >> 7) & 0xFF, 1, 254);
  const float unit = std::bit_cast<float>(exponent << 23);
  const float sum = widened(weight) + static_cast<float>(correction) / 127.0F * 0x1.0p-8F * unit;
  return correction == 0 ? widened(weight) : sum;  // keeps the sign of zero
}

}  // namespace

FT_CLONES void round_stochastically(const float* values, uint16_t* target, int64_t count,
                                    uint64_t key, uint64_t first_element) {
  round_all<false>(values, target, count, key, first_element);
}

FT_CLONES void add_stochastically(const float* values, uint16_t* target, int64_t count,
                                  uint64_t key, uint64_t first_element) {
  round_all<true>(values, target, count, key, first_element);
}

FT_CLONES void split_values(const float* values, uint16_t* weight, int8_t* correction,
                            int64_t count) {
  for (int64_t i = 0; i < count; ++i) split_one(values[i], weight[i], correction[i]);
}

FT_CLONES void join_values(const uint16_t* weight, const int8_t* correction, float* values,
                           int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = join_one(weight[i], correction[i]);
}

FT_CLONES void scale(const float* source, float factor, float* target, int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] = source[i] * factor;
}

FT_CLONES void widen(const uint16_t* source, float factor, float* target, int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] = widened(source[i]) * factor;
}

}  // namespace finetune::kernels
