// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "finetune/data/batch.h"
#include "finetune/task/task.h"

namespace finetune {

// Metrics of one pass over evaluation data. Keeps sums, or what a sample needs at least (two
// numbers for a correlation, the best spans for an answer), never all logits.
class Metrics {
 public:
  virtual ~Metrics() = default;
  virtual void add(const Batch& batch, const Outputs& outputs) = 0;
  // Names without "eval_", in the order in which transformers' scripts report them. NaN where a
  // metric is not defined. Computed again at each call.
  [[nodiscard]] virtual std::vector<std::pair<std::string, double>> compute() const = 0;
};

}  // namespace finetune
