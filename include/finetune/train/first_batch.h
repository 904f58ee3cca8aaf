// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/config/load.h"

namespace finetune {

// `finetune train --dry_run`: reads tokenizer and all data as the training does, and shows the
// first micro-batch as text, with what each sample teaches: masked tokens, classes, tags, choices,
// answers. Throws what the training would: Error(kConfig | kData), Interrupted.
[[nodiscard]] std::string describe_first_batch(const LoadedConfig& config);

}  // namespace finetune
