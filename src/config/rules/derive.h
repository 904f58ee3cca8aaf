// SPDX-License-Identifier: MIT
#pragma once

#include "config/reading/problems.h"
#include "finetune/config/load.h"

namespace finetune {

// Derives keys from others, as documented at load_config(), and adds a note if that changes a key
// that was set.
void derive(LoadedConfig& config, Problems& problems);

}  // namespace finetune
