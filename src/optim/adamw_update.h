// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/kernels/quantized_state.h"
#include "finetune/optim/optimizer.h"

namespace finetune {

inline AdamWUpdate make_update(const OptimizerOptions& options, double learning_rate,
                               double weight_decay, int64_t updates, double factor,
                               uint64_t rounding_key) {
  return {.learning_rate = learning_rate,
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .epsilon = options.epsilon,
          .weight_decay = weight_decay,
          .updates = updates,
          .factor = factor,
          .rounding_key = rounding_key};
}

}  // namespace finetune
