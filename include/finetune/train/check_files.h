// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/config/load.h"

namespace finetune {

// Checks that everything a configuration names exists: data files and matches of globs, model and
// tokenizer folders, the checkpoint to resume from. Reads no data. Throws Error(kConfig) listing
// everything that is missing, one per line.
void check_files(const LoadedConfig& config);
// The same for data, models and tokenizer alone: what a run that starts over reads.
void check_inputs(const LoadedConfig& config);
// Checks what the configuration, the model's config.json and the tokenizer decide together, as a
// training does before it reads data or weights: the task, lengths, adapters. Throws Error(kConfig
// | kData).
void check_parts(const LoadedConfig& config);

}  // namespace finetune
