// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include "finetune/task/predictor.h"
#include "finetune/task/setup.h"
#include "finetune/task/task.h"
#include "finetune/task/tasks.h"

namespace finetune {

// Causal language modelling, as in run_clm.

const TaskKeys& causal_lm_keys();
const TaskDescriptor& causal_lm_descriptor();

[[nodiscard]] std::unique_ptr<TaskSetup> make_causal_lm_setup(const SetupContext& context);

}  // namespace finetune
