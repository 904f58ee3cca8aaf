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

// Classes, several labels or numbers for texts and pairs of texts, as run_glue and
// run_classification.

const TaskKeys& sequence_classification_keys();
const TaskDescriptor& sequence_classification_descriptor();

[[nodiscard]] std::unique_ptr<TaskSetup> make_sequence_classification_setup(
    const SetupContext& context);

// `model` must outlive the task.
// One term: cross entropy over the samples whose class is known; binary cross entropy over all
// values (multi label); squared error over all values (regression). Only the first is smoothed
// and weighted.
[[nodiscard]] std::unique_ptr<Task> make_sequence_classification_task(HeadModel& model,
                                                                      c10::Device device,
                                                                      ProblemType problem,
                                                                      const LossOptions& options);

// Values as scikit-learn's and SciPy's. Without a name:
// - one label: accuracy, f1 (of class 1 where there are two, else the mean over the classes that
//   occur), matthews_correlation;
//   roc_auc where it is asked for: of class 1 where there are two, else the mean over the classes,
//   each against the rest (scikit-learn's multi_class="ovr");
// - several labels (a logit above 0 is a yes): f1 over all yes and no (micro), accuracy (of whole
//   samples); roc_auc where it is asked for, the mean over the labels;
// - a number: mse, and for one output pearson, spearmanr and combined_score, their mean.
// `metric_names` are some of these, precision or recall (averaged as f1 is), or a task of GLUE for
// what run_glue reports there: "mrpc" is accuracy, f1 and combined_score. Throws Error(kConfig)
// for a name that the problem does not have.
[[nodiscard]] std::unique_ptr<Metrics> make_sequence_classification_metrics(
    ProblemType problem, const std::vector<std::string>& metric_names);

// predict_results.txt of run_glue and run_classification: "index<TAB>prediction" and a line for
// each sample: the label's name, the list of the names whose logit is above 0 (multi label, as
// Python prints lists), or a number with three decimals (a list of them where a sample has
// several). `labels` are the names of the classes in order; not used in regression.
[[nodiscard]] std::unique_ptr<PredictionFiles> make_classification_files(
    ProblemType problem, std::vector<std::string> labels);

// Some of accuracy, f1, precision, recall, roc_auc and matthews_correlation, of one class for each
// sample.
[[nodiscard]] std::unique_ptr<Metrics> make_class_metrics(std::vector<std::string> names);

[[nodiscard]] std::unique_ptr<Predictor> make_text_classification(const std::string& folder,
                                                                  const PredictOptions& options);

}  // namespace finetune
