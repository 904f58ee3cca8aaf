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

// `model` must outlive the task.
[[nodiscard]] std::unique_ptr<Task> make_masked_lm_task(Model& model, c10::Device device,
                                                        const LossOptions& options);

// Computes `accuracy`: the fraction of masked tokens whose most probable token is correct.
[[nodiscard]] std::unique_ptr<Metrics> make_masked_lm_metrics(const char* name = "accuracy");

[[nodiscard]] std::unique_ptr<Predictor> make_fill_mask(const std::string& folder,
                                                        const PredictOptions& options);

}  // namespace finetune
