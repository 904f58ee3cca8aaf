// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <vector>

#include "finetune/tensor/tensor.h"

namespace finetune {

// A hand-written backward pass: maps the output's gradient to one gradient per input (undefined:
// none). Runs once, without grad mode; its captured tensors are freed afterwards.
using Backward = std::function<std::vector<Tensor>(Tensor gradient)>;

// Makes `output`, which was computed without autograd, a function of `inputs` for autograd. Returns
// it unchanged if grad mode is off or no input requires a gradient. Requires: one to three inputs.
[[nodiscard]] Tensor attach_backward(const Tensor& output, const std::vector<Tensor>& inputs,
                                     Backward backward);

}  // namespace finetune
