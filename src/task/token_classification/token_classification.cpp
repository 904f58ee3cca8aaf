// SPDX-License-Identifier: MIT
#include "task/token_classification/token_classification.h"

namespace finetune {

const TaskDescriptor& token_classification_descriptor() {
  static const TaskDescriptor descriptor = {
      .keys = token_classification_keys(),
      .rows = RowTask::kTokenClassification,
      .head = [](const TaskArgs&) { return std::optional(Head::kTokenClassification); },
      .make_setup = make_token_classification_setup,
      .pipeline = {.name = "token-classification",
                   .aliases = {"ner"},
                   .class_suffix = "ForTokenClassification",
                   .make_predictor = make_token_classification},
      .reads_all_tokens = true};
  return descriptor;
}

}  // namespace finetune
