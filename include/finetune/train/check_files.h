// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/config/load.h"

namespace finetune {

// Looks for what a configuration names: data files and what their globs match, model and tokenizer
// folders, the checkpoint to resume from. Reads no data. Throws Error(kConfig) with everything that
// is missing, one per line.
void check_files(const LoadedConfig& config);

}  // namespace finetune
