// SPDX-License-Identifier: MIT
#pragma once

#include "config/problems.h"
#include "finetune/config/load.h"

namespace finetune {

// The limits of a session and the commands at its end: contradictions, and values that are no
// time, machine or program.
void check_session(const LoadedConfig& config, Problems& problems);

}  // namespace finetune
