// SPDX-License-Identifier: MIT
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "finetune/tensor/tensor.h"

namespace finetune {

// Weights of classes for a loss and its denominator. A weighted mean depends only on the ratios of
// the weights, so they are scaled to whole numbers with a maximum of 2^36. The sum of an update's
// weights is then exact for every division into micro-batches.
class ClassWeights {
 public:
  ClassWeights() = default;
  ClassWeights(const std::vector<double>& weights, c10::Device device);

  [[nodiscard]] bool empty() const { return units_.empty(); }
  // Returns the summed weight of the targets; without weights, their number. kIgnoredLabel is
  // skipped.
  [[nodiscard]] int64_t sum(const std::vector<int64_t>& classes) const;
  // float32 [classes]; undefined without weights.
  [[nodiscard]] const Tensor& tensor() const { return tensor_; }

 private:
  std::vector<int64_t> units_;
  Tensor tensor_;
};

}  // namespace finetune
