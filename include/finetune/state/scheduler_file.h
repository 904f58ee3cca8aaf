// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "finetune/tensor/torch_file.h"

namespace finetune {

// scheduler.pt as LambdaLR's state_dict after `updates` updates.
[[nodiscard]] TorchValue scheduler_to_torch(int64_t updates, double initial_learning_rate,
                                            double learning_rate);

}  // namespace finetune
