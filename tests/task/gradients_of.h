// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <gtest/gtest.h>

#include <vector>

#include "finetune/model/model.h"
#include "finetune/task/task.h"

namespace finetune {

// Runs the backward passes of these micro-batches and returns the loss of the task's first term,
// with `targets` in the whole update. The model then has the gradients.
inline double gradients_of(const std::vector<Batch>& batches, Task& task, int64_t targets) {
  double loss = 0.0;
  for (const Batch& batch : batches) {
    const Tensor sum = task.loss_sums(
        batch, {.dropout = {.seed = 1, .update = 2, .first_position = batch.first_position}})[0];
    if (!sum.defined()) continue;
    const Tensor share = sum / static_cast<double>(targets);
    share.backward();
    loss += share.item<double>();
  }
  return loss;
}

// Expects equal gradients up to the order of sums.
inline void expect_close_gradients(const Model& a, const Model& b) {
  for (size_t i = 0; i < a.parameters().size(); ++i) {
    EXPECT_TRUE(
        at::allclose(a.parameters()[i].tensor.grad(), b.parameters()[i].tensor.grad(), 1e-4, 1e-6))
        << a.parameters()[i].name;
  }
}

}  // namespace finetune
