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

// A label for each word, as run_ner.

const TaskKeys& token_classification_keys();
const TaskDescriptor& token_classification_descriptor();

[[nodiscard]] std::unique_ptr<TaskSetup> make_token_classification_setup(
    const SetupContext& context);

// `model` must outlive the task.
// One term: cross entropy over the tokens that have a label.
[[nodiscard]] std::unique_ptr<Task> make_token_classification_task(HeadModel& model,
                                                                   c10::Device device,
                                                                   const LossOptions& options);

// Of entities as seqeval finds them by default (conlleval's rules for B-, I-, E-, S- and O):
// precision, recall, f1, and accuracy over tokens. With `by_entity` as run_ner's
// return_entity_level_metrics: PER_precision, PER_recall, PER_f1, PER_number for each type in
// order, then overall_precision, overall_recall, overall_f1, overall_accuracy.
// `labels` are the names of the classes in order.
[[nodiscard]] std::unique_ptr<Metrics> make_token_classification_metrics(
    std::vector<std::string> labels, bool by_entity);

// predictions.txt of run_ner: a line for each sample with the labels of its tokens that have one
// in the data, joined by spaces. Where a sample's labels are not known: of each word's first token.
[[nodiscard]] std::unique_ptr<PredictionFiles> make_token_classification_files(
    std::shared_ptr<const TokenClassificationDataset> data, std::vector<std::string> labels);

[[nodiscard]] std::unique_ptr<Predictor> make_token_classification(const std::string& folder,
                                                                   const PredictOptions& options);

}  // namespace finetune
