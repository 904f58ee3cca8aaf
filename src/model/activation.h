// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/tensor/tensor.h"
#include "model/activation_names.h"

namespace finetune {

using Activation = Tensor (*)(const Tensor&);

// Returns the function that transformers' ACT2FN calls `name`. Requires: one of activation_names().
[[nodiscard]] Activation find_activation(const std::string& name);

}  // namespace finetune
