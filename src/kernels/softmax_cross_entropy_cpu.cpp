// SPDX-License-Identifier: MIT
#include "kernels/softmax_cross_entropy_cpu.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace finetune::kernels {
namespace {

// Sums and maxima run in this many lanes whatever the processor has, so that bits are the same.
constexpr int kLanes = 16;

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define FT_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define FT_CLONES
#endif
#define FT_INLINE inline __attribute__((always_inline))

// exp(x) for x <= 0, within 2 units in the last place (Cephes' expf): x = n ln 2 + r. NaN stays.
FT_INLINE float exponential(float x) {
  constexpr float kRound = 0x1.8p23F;  // adding it rounds to the nearest integer
  const float shifted = x * 1.44269504088896341F + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  const uint32_t power = (std::bit_cast<uint32_t>(shifted) << 23) + 0x3F800000U;
  return x < -87.0F ? 0.0F : p * std::bit_cast<float>(power);
}

FT_INLINE float maximum(const float* values, int64_t count) {
  float lanes[kLanes];
  for (float& lane : lanes) lane = -std::numeric_limits<float>::infinity();
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) {
      lanes[k] = values[i + k] > lanes[k] ? values[i + k] : lanes[k];
    }
  }
  float result = *std::max_element(lanes, lanes + kLanes);
  for (; i < count; ++i) result = values[i] > result ? values[i] : result;
  return result;
}

// Sum of values[i] - shift: near zero, where a float sum is the most exact.
FT_INLINE double shifted_sum(const float* values, int64_t count, float shift) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) lanes[k] += values[i + k] - shift;
  }
  double result = 0;
  for (const float lane : lanes) result += lane;
  for (; i < count; ++i) result += values[i] - shift;
  return result;
}

// values <- exp(values - shift); returns their sum.
FT_INLINE double exponentials(float* values, int64_t count, float shift) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) {
      const float e = exponential(values[i + k] - shift);
      values[i + k] = e;
      lanes[k] += e;
    }
  }
  double result = 0;
  for (const float lane : lanes) result += lane;
  for (; i < count; ++i) {
    values[i] = exponential(values[i] - shift);
    result += values[i];
  }
  return result;
}

}  // namespace

FT_CLONES void softmax_cross_entropy_rows(const SoftmaxCrossEntropyRows& rows) {
  const double smoothing = rows.label_smoothing_factor;
  const double on_each = smoothing / static_cast<double>(rows.columns);
  for (int64_t r = rows.first_row; r < rows.last_row; ++r) {
    float* row = rows.logits + r * rows.columns;
    const int64_t label = rows.labels[r];
    const float top = maximum(row, rows.columns);
    const double of_label = static_cast<double>(row[label]) - static_cast<double>(top);
    const double of_all = smoothing == 0 ? 0.0 : shifted_sum(row, rows.columns, top);
    const double sum = exponentials(row, rows.columns, top);
    rows.losses[r] = std::log(sum) - (1 - smoothing) * of_label - on_each * of_all;
    if (!rows.with_gradient) continue;
    const auto factor = static_cast<float>(rows.gradient_scale / sum);
    const auto constant = static_cast<float>(rows.gradient_scale * on_each);
    for (int64_t i = 0; i < rows.columns; ++i) row[i] = row[i] * factor - constant;
    row[label] -= static_cast<float>(rows.gradient_scale * (1 - smoothing));
  }
}

}  // namespace finetune::kernels
