// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include "finetune/task/metrics.h"
#include "finetune/task/prediction_files.h"
#include "finetune/task/predictor.h"
#include "finetune/task/setup.h"
#include "finetune/task/task.h"
#include "finetune/task/tasks.h"

namespace finetune {

// One of several choices for a context, as run_swag.

const TaskKeys& multiple_choice_keys();
const TaskDescriptor& multiple_choice_descriptor();

[[nodiscard]] std::unique_ptr<TaskSetup> make_multiple_choice_setup(const SetupContext& context);

// `model` must outlive the task.
// One term: cross entropy over the choices of each sample.
[[nodiscard]] std::unique_ptr<Task> make_multiple_choice_task(HeadModel& model, c10::Device device,
                                                              const LossOptions& options);

// accuracy
[[nodiscard]] std::unique_ptr<Metrics> make_multiple_choice_metrics();

// predict_results.txt as in sequence classification, with the number of the best choice; run_swag
// writes none.
[[nodiscard]] std::unique_ptr<PredictionFiles> make_multiple_choice_files();

[[nodiscard]] std::unique_ptr<Predictor> make_multiple_choice(const std::string& folder,
                                                              const PredictOptions& options);

}  // namespace finetune
