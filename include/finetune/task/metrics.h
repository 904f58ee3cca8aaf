// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "finetune/data/batch.h"
#include "finetune/task/task.h"

namespace finetune {

// Metrics of one pass over evaluation data. Keeps sums, or the minimum per sample (two numbers for
// a correlation, the best spans for an answer), never all logits.
class Metrics {
 public:
  virtual ~Metrics() = default;
  virtual void add(const Batch& batch, const Outputs& outputs) = 0;
  // Returns names without "eval_" and values, in the order of transformers' scripts; NaN for an
  // undefined metric. Computed again at each call.
  [[nodiscard]] virtual std::vector<std::pair<std::string, double>> compute() const = 0;
};

}  // namespace finetune
