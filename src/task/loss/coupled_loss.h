// SPDX-License-Identifier: MIT
#pragma once

#include <functional>

#include "finetune/tensor/tensor.h"

namespace finetune {

// A loss over all samples of an update at once, for a task with two passes
// (Task::has_first_pass()). A sample has one or more rows.
class CoupledLoss {
 public:
  // From the rows of all samples [N, D], by torch's operators: the losses of `count` samples, the
  // first of which is `first`: [count].
  using Losses = std::function<Tensor(const Tensor& rows, int64_t first, int64_t count)>;

  // `rows` [N, D]: those of Task::couple(). The losses of `at_once` samples are differentiated at
  // a time, which bounds the memory.
  void couple(const Tensor& rows, int64_t samples, int64_t at_once, const Losses& losses);
  // Returns the sum of the losses of some samples, from their rows [n, D], the first of which is
  // `first_row`. Its gradient is that of the sum over all samples, to which each row contributes.
  [[nodiscard]] Tensor sum_of(const Tensor& rows, int64_t first_row) const;

 private:
  Tensor losses_;     // [samples]
  Tensor gradients_;  // [N, D]
};

}  // namespace finetune
