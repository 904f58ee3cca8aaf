// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/config/load.h"

namespace finetune {

// Implements `finetune train --dry_run`: reads tokenizer and all data like the training, and
// returns the first micro-batch as text with each sample's targets: masked tokens, classes, tags,
// choices, answers; for chat data, the first samples with what is learned marked. Printable. Throws
// what the training would: Error(kConfig | kData), Interrupted.
[[nodiscard]] std::string describe_first_batch(const LoadedConfig& config);

}  // namespace finetune
