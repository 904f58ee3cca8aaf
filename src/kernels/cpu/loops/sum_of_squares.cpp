// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/sum_of_squares.h"

#include <bit>

#include "kernels/cpu/loops/vector_clones.h"

namespace finetune::kernels {
namespace {

constexpr int kLanes = 16;

FT_INLINE float widened(float value) { return value; }
FT_INLINE float widened(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

template <typename T>
FT_INLINE double sum_in_lanes(const T* values, int64_t count) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double value = widened(values[i + lane]);
      lanes[lane] += value * value;
    }
  }
  for (; i < count; ++i) {
    const double value = widened(values[i]);
    lanes[0] += value * value;
  }
  double sum = 0.0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

FT_CLONES double sum_of_squares(const float* values, int64_t count) {
  return sum_in_lanes(values, count);
}

FT_CLONES double sum_of_squares_of_bfloat16(const uint16_t* values, int64_t count) {
  return sum_in_lanes(values, count);
}

}  // namespace finetune::kernels
