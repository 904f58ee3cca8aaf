// SPDX-License-Identifier: MIT
#pragma once

#include "config/problems.h"
#include "finetune/config/load.h"

namespace finetune {

// Adds a problem for everything in activation_checkpointing_kwargs, optim_args and memory_budget
// that is not understood, and a note for what has no effect. Requires: the old names of keys have
// been resolved.
void check_techniques(LoadedConfig& config, Problems& problems);

}  // namespace finetune
