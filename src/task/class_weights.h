// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "finetune/tensor/tensor.h"

namespace finetune {

// Weights of classes as a loss and its denominator need them. A weighted mean depends on the
// weights' ratios alone, so that the largest becomes 2^36 and the others whole numbers: the sum of
// an update's weights is then exact however its micro-batches are divided.
class ClassWeights {
 public:
  ClassWeights() = default;
  ClassWeights(const std::vector<double>& weights, c10::Device device);

  [[nodiscard]] bool empty() const { return units_.empty(); }
  // The summed weight of the classes other than kIgnoredLabel; without weights their number.
  [[nodiscard]] int64_t sum(const std::vector<int64_t>& classes) const;
  // float32 [classes]; undefined without weights.
  [[nodiscard]] const Tensor& tensor() const { return tensor_; }

 private:
  std::vector<int64_t> units_;
  Tensor tensor_;
};

}  // namespace finetune
