// SPDX-License-Identifier: MIT
#include "task/question_answering/question_answering.h"

namespace finetune {

const TaskDescriptor& question_answering_descriptor() {
  static const TaskDescriptor descriptor = {
      .keys = question_answering_keys(),
      .rows = RowTask::kQuestionAnswering,
      .head = [](const TaskArgs&) { return std::optional(Head::kQuestionAnswering); },
      .make_setup = make_question_answering_setup,
      .pipeline = {.name = "question-answering",
                   .class_suffix = "ForQuestionAnswering",
                   .make_predictor = make_question_answering},
      .reads_all_tokens = true};
  return descriptor;
}

}  // namespace finetune
