// SPDX-License-Identifier: MIT
#include "kernels/cpu/loops/softmax_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/loops/vector_math.h"

namespace finetune::kernels {
namespace {

// Sums and maxima use this many lanes on every processor, so that the bits are equal.
constexpr int kLanes = 16;

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

// Sum of values[i] - shift. The shift is the maximum, so that the float32 sums stay small and
// accurate.
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

// Overwrites values with exp(values - shift); returns their sum.
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

// With z the logits, top their maximum, S = sum exp(z - top), e the label smoothing and V columns:
// loss = log S - (1 - e) (z[label] - top) - e / V sum(z - top), dloss/dz = softmax(z) - e / V - (1
// - e) [i = label].
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
