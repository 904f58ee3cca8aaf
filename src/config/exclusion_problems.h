// SPDX-License-Identifier: MIT
#pragma once

#include "config/problems.h"
#include "finetune/config/load.h"

namespace finetune {

// Adds a problem for every exclusion of the table that the configuration breaks, with both keys
// and where they were set.
void check_exclusions(const LoadedConfig& config, Problems& problems);

}  // namespace finetune
