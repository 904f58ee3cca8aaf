// SPDX-License-Identifier: MIT
#pragma once

#include <set>
#include <string>

#include "finetune/params/weight.h"

// The files of an adapter, as PEFT 0.21 writes and reads them: adapter_config.json and
// adapter_model.safetensors, whose names begin with "base_model.model.".
namespace finetune {

// The full names of the layers that have an adapter, sorted, as PEFT writes all-linear.
[[nodiscard]] std::set<std::string> adapted_modules(const Weights& weights);

}  // namespace finetune
