// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "finetune/data/labels.h"
#include "finetune/task/metrics.h"

namespace finetune {

// Computes metrics as scikit-learn and SciPy do. Without names:
// - one label: accuracy, f1 (of class 1 if there are two classes, else the mean over the classes
//   that occur), matthews_correlation. On request roc_auc: of class 1 if there are two classes,
//   else the mean over the classes, each against the rest (scikit-learn's multi_class="ovr");
// - several labels (predicted if the logit is above 0): f1 over all decisions (micro), accuracy (of
//   complete samples). On request roc_auc, the mean over the labels;
// - a number: mse, and for one output pearson, spearmanr and their mean, combined_score.
// `metric_names` are some of these, precision or recall (averaged as f1 is), or a task of GLUE for
// what run_glue reports there: "mrpc" is accuracy, f1 and combined_score. Throws Error(kConfig) for
// a name that the problem does not have.
[[nodiscard]] std::unique_ptr<Metrics> make_sequence_classification_metrics(
    ProblemType problem, const std::vector<std::string>& metric_names);

// Computes some of accuracy, f1, precision, recall, roc_auc and matthews_correlation for samples
// with one class each.
[[nodiscard]] std::unique_ptr<Metrics> make_class_metrics(std::vector<std::string> names);

}  // namespace finetune
