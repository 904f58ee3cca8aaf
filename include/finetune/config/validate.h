// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/config/load.h"

namespace finetune {

enum class Purpose {
  kTrain,     // train, and evaluate where the keys ask for it
  kEvaluate,  // evaluate only
};

// Checks the rules that keys have with each other, Hugging Face's and ours, before anything is
// read or written. Throws Error(kConfig) with one line for every rule that is broken, each
// beginning with the place of the key at fault.
void validate(const LoadedConfig& config, Purpose purpose);

}  // namespace finetune
