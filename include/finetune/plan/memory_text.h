// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/plan/memory_plan.h"

namespace finetune {

// "870 MiB", rounded up.
[[nodiscard]] std::string mebibytes(int64_t bytes);

// As the keys name them.
[[nodiscard]] std::string name_of(WeightFormat format);
[[nodiscard]] std::string name_of(GradientFormat format);
[[nodiscard]] std::string name_of(Precision precision);
// "none", "selective", "every layer", "every 2 layers".
[[nodiscard]] std::string describe(const ActivationCheckpointing& checkpointing);

}  // namespace finetune
