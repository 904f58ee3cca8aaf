// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "finetune/data/token_classification_dataset.h"
#include "finetune/task/metrics.h"
#include "finetune/task/prediction_files.h"
#include "finetune/task/predictor.h"
#include "finetune/task/setup.h"
#include "finetune/task/task.h"
#include "finetune/task/tasks.h"

namespace finetune {

// Labels each word of a text, as in run_ner.

const TaskKeys& token_classification_keys();
const TaskDescriptor& token_classification_descriptor();

[[nodiscard]] std::unique_ptr<TaskSetup> make_token_classification_setup(
    const SetupContext& context);

// `model` must outlive the task.
// One term: cross entropy over the tokens that have a label.
[[nodiscard]] std::unique_ptr<Task> make_token_classification_task(Model& model, c10::Device device,
                                                                   const LossOptions& options);

// Computes precision, recall and f1 of entities as seqeval finds them by default (conlleval's rules
// for B-, I-, E-, S- and O), and accuracy over tokens. With `by_entity`, as with run_ner's
// return_entity_level_metrics: PER_precision, PER_recall, PER_f1, PER_number for each type in
// order, then overall_precision, overall_recall, overall_f1, overall_accuracy. `labels` are the
// names of the classes in order.
[[nodiscard]] std::unique_ptr<Metrics> make_token_classification_metrics(
    std::vector<std::string> labels, bool by_entity);

// Writes predictions.txt of run_ner: a line for each sample with one label for each of its words,
// joined by spaces. A word without tokens has O; run_ner leaves it out, so that labels and words no
// longer belong together.
[[nodiscard]] std::unique_ptr<PredictionFiles> make_token_classification_files(
    std::shared_ptr<const TokenClassificationDataset> data, std::vector<std::string> labels);

[[nodiscard]] std::unique_ptr<Predictor> make_token_classification(const std::string& folder,
                                                                   const PredictOptions& options);

}  // namespace finetune
