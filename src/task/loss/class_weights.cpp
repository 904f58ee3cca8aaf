// SPDX-License-Identifier: MIT
#include "task/loss/class_weights.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>

#include "finetune/base/error.h"
#include "task/loss/head_task.h"
#include "task/loss/model_input.h"

namespace finetune {

ClassWeights::ClassWeights(const std::vector<double>& weights, c10::Device device) {
  constexpr double kLargest = 0x1p36;
  if (weights.empty()) return;
  const double largest = *std::ranges::max_element(weights);
  std::vector<float> values;
  for (const double weight : weights) {
    FT_CHECK(weight > 0 && std::isfinite(weight), "weights of classes are above 0");
    units_.push_back(std::max<int64_t>(std::llround(weight / largest * kLargest), 1));
    values.push_back(static_cast<float>(units_.back()));
  }
  tensor_ = to_device(values, device);
}

int64_t ClassWeights::sum(const std::vector<int64_t>& classes) const {
  if (empty()) return count_known(classes);
  int64_t sum = 0;
  for (const int64_t value : classes) {
    if (value == kIgnoredLabel) continue;
    // Counts as 1 here; the loss refuses a class that the model does not have.
    const bool is_known = value >= 0 && value < static_cast<int64_t>(units_.size());
    sum += is_known ? units_[static_cast<size_t>(value)] : 1;
  }
  return sum;
}

}  // namespace finetune
