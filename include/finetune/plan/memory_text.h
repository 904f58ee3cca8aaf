// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/plan/memory_plan.h"

namespace finetune {

// Returns "870 MiB", rounded up.
[[nodiscard]] std::string mebibytes(int64_t bytes);

// The value's name in the configuration.
[[nodiscard]] std::string name_of(Precision precision);
// Returns "none", "selective", "every layer" or "every 2 layers".
[[nodiscard]] std::string describe(const ActivationCheckpointing& checkpointing);

}  // namespace finetune
