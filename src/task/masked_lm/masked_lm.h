// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include "finetune/task/metrics.h"
#include "finetune/task/predictor.h"
#include "finetune/task/setup.h"
#include "finetune/task/task.h"
#include "finetune/task/tasks.h"

namespace finetune {

// Masked language modelling, as in run_mlm.

const TaskKeys& masked_lm_keys();
const TaskDescriptor& masked_lm_descriptor();

[[nodiscard]] std::unique_ptr<TaskSetup> make_masked_lm_setup(const SetupContext& context);

}  // namespace finetune
