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

// Chooses one of several continuations of a context, as in run_swag.

const TaskKeys& multiple_choice_keys();
const TaskDescriptor& multiple_choice_descriptor();

[[nodiscard]] std::unique_ptr<TaskSetup> make_multiple_choice_setup(const SetupContext& context);

// `model` must outlive the task.
// One term: cross entropy over the choices of each sample.
[[nodiscard]] std::unique_ptr<Task> make_multiple_choice_task(Model& model, c10::Device device,
                                                              const LossOptions& options);

// Computes `accuracy`.
[[nodiscard]] std::unique_ptr<Metrics> make_multiple_choice_metrics();

// Writes predict_results.txt as for sequence classification, with the number of the best choice;
// run_swag writes no such file.
[[nodiscard]] std::unique_ptr<PredictionFiles> make_multiple_choice_files();

[[nodiscard]] std::unique_ptr<Predictor> make_multiple_choice(const std::string& folder,
                                                              const PredictOptions& options);

}  // namespace finetune
