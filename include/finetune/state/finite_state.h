// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/optim/optimizer.h"

namespace finetune {

// What of a run's state is no number ("the weight 'encoder.weight'"); empty where all is
// finite. Reads every weight and every optimizer state once.
[[nodiscard]] std::string nonfinite_part(const Optimizer& optimizer);

}  // namespace finetune
