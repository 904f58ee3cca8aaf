// SPDX-License-Identifier: MIT
#include "task/reranker/reranker.h"

namespace finetune {

const TaskDescriptor& reranker_descriptor() {
  static const TaskDescriptor descriptor = {
      .keys = reranker_keys(),
      .rows = RowTask::kSequenceClassification,
      .head = [](const TaskArgs&) { return std::optional(Head::kSequenceClassification); },
      .make_setup = make_reranker_setup,
      .pipeline = {.name = "text-ranking",
                   .class_suffix = "ForSequenceClassification",
                   .library =
                       [](const TaskArgs&) {
                         return PythonLibrary{
                             .name = "sentence-transformers",
                             .import_line = "from sentence_transformers import CrossEncoder",
                             .callable = "CrossEncoder"};
                       },
                   .make_predictor = make_reranker}};
  return descriptor;
}

}  // namespace finetune
