// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/optim/adamw.h"
#include "finetune/tensor/torch_file.h"

namespace finetune {

// optimizer.pt as torch.optim.AdamW's state_dict: {state: {i: {step, exp_avg, exp_avg_sq}},
// param_groups: [decay, no decay]}.
[[nodiscard]] TorchValue optimizer_to_torch(const AdamW& optimizer, double learning_rate,
                                            double initial_learning_rate);

// Fills the optimizer's state. Throws Error(kData) with `where` and the parameter's name for
// whatever does not fit.
void optimizer_from_torch(AdamW& optimizer, const TorchValue& value, const std::string& where);

// scheduler.pt as LambdaLR's state_dict after `updates` updates.
[[nodiscard]] TorchValue scheduler_to_torch(int64_t updates, double initial_learning_rate,
                                            double learning_rate);

}  // namespace finetune
