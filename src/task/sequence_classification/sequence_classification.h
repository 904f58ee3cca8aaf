// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "finetune/data/labels.h"
#include "finetune/task/metrics.h"
#include "finetune/task/prediction_files.h"
#include "finetune/task/predictor.h"
#include "finetune/task/setup.h"
#include "finetune/task/task.h"
#include "finetune/task/tasks.h"

namespace finetune {

// Classifies texts and pairs of texts (one class or several labels) or predicts numbers for them,
// as in run_glue and run_classification.

const TaskKeys& sequence_classification_keys();
const TaskDescriptor& sequence_classification_descriptor();

[[nodiscard]] std::unique_ptr<TaskSetup> make_sequence_classification_setup(
    const SetupContext& context);

// `model` must outlive the task.
// One term: cross entropy over the samples with a known class; binary cross entropy over all values
// (multi label); squared error over all values (regression). Label smoothing and class weights
// apply only to the first.
[[nodiscard]] std::unique_ptr<Task> make_sequence_classification_task(Model& model,
                                                                      c10::Device device,
                                                                      ProblemType problem,
                                                                      const LossOptions& options);

// Writes predict_results.txt of run_glue and run_classification: "index<TAB>prediction" and a line
// for each sample with the name of the label, the list of names whose logit is above 0 (multi
// label, as Python prints lists), or a number with three decimals (a list if a sample has several).
// `labels` are the names of the classes in order; unused in regression.
[[nodiscard]] std::unique_ptr<PredictionFiles> make_classification_files(
    ProblemType problem, std::vector<std::string> labels);

[[nodiscard]] std::unique_ptr<Predictor> make_text_classification(const std::string& folder,
                                                                  const PredictOptions& options);

}  // namespace finetune
