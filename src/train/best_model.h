// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "finetune/config/training_args.h"
#include "finetune/state/run_state.h"

namespace finetune {

// metric_for_best_model as log entries name it: "eval_loss". Requires: the key is set.
[[nodiscard]] std::string best_metric_key(const TrainingArgs& args);

// One warning where the finished run could not export its best model.
void warn_of_lost_best(const RunState& finished);

}  // namespace finetune
