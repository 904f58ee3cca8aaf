// SPDX-License-Identifier: MIT
#include "task/sequence_classification/sequence_classification.h"

namespace finetune {

const TaskDescriptor& sequence_classification_descriptor() {
  static const TaskDescriptor descriptor = {
      .keys = sequence_classification_keys(),
      .rows = RowTask::kSequenceClassification,
      .head = [](const TaskArgs&) { return std::optional(Head::kSequenceClassification); },
      .make_setup = make_sequence_classification_setup,
      .pipeline = {.name = "text-classification",
                   .aliases = {"sentiment-analysis"},
                   .class_suffix = "ForSequenceClassification",
                   .make_predictor = make_text_classification}};
  return descriptor;
}

}  // namespace finetune
