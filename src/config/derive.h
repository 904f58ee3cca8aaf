// SPDX-License-Identifier: MIT
#pragma once

#include "config/problems.h"
#include "finetune/config/load.h"

namespace finetune {

// Fills in what follows from other keys, as load_config promises, and adds a note where that
// changes something that was set.
void derive(LoadedConfig& config, Problems& problems);

}  // namespace finetune
