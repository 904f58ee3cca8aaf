// SPDX-License-Identifier: MIT
#include "task/metrics/temperature.h"

#include <algorithm>
#include <cmath>

namespace finetune {

void TemperatureFit::add(std::span<const double> scores, std::span<const float> target) {
  // The greatest score is 0, so that no power overflows.
  const double greatest = *std::ranges::max_element(scores);
  for (const double score : scores) scores_.push_back(score - greatest);
  targets_.insert(targets_.end(), target.begin(), target.end());
  ends_.push_back(scores_.size());
}

TemperatureFit::Slope TemperatureFit::slope(double inverse) const {
  Slope slope;
  size_t begin = 0;
  for (const size_t end : ends_) {
    double sum = 0.0, mean = 0.0, square = 0.0, wanted = 0.0;
    for (size_t i = begin; i < end; ++i) {
      const double power = std::exp(inverse * scores_[i]);
      sum += power;
      mean += power * scores_[i];
      square += power * scores_[i] * scores_[i];
      wanted += static_cast<double>(targets_[i]) * scores_[i];
    }
    mean /= sum;
    slope.first += mean - wanted;
    slope.second += square / sum - mean * mean;
    begin = end;
  }
  return slope;
}

TemperatureFit::Result TemperatureFit::fit() const {
  if (size() < kFewest) return {};
  double low = 1.0 / kMost, high = 1.0 / kLeast;
  if (slope(low).first >= 0.0) return {.temperature = kMost, .is_bound = true};
  if (slope(high).first <= 0.0) return {.temperature = kLeast, .is_bound = true};
  double inverse = 1.0;
  for (int round = 0; round < 100; ++round) {
    const Slope at = slope(inverse);
    (at.first > 0.0 ? high : low) = inverse;
    double next = at.second > 0.0 ? inverse - at.first / at.second : low;
    if (!(next > low && next < high)) next = (low + high) / 2;
    const bool is_near = std::abs(next - inverse) <= 1e-12 * inverse;
    inverse = next;
    if (is_near) break;
  }
  return {.temperature = 1.0 / inverse, .is_bound = false};
}

}  // namespace finetune
