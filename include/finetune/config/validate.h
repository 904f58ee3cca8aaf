// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/config/load.h"

namespace finetune {

enum class Purpose {
  kTrain,     // train, and evaluate if the keys request it
  kPlan,      // plan a training: the memory is not decided yet
  kEvaluate,  // evaluate only
};

// Checks rules that involve several keys, Hugging Face's and ours, before anything is read or
// written. Throws Error(kConfig) with one line per violated rule, each starting with the position
// of the key at fault.
void validate(const LoadedConfig& config, Purpose purpose);

}  // namespace finetune
