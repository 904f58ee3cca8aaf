// SPDX-License-Identifier: MIT
#include "task/multiple_choice/multiple_choice.h"

#include "task/metrics/class_metrics.h"

namespace finetune {
namespace {

std::string choice_text(int64_t label) {
  return label == kIgnoredLabel ? "none" : "choice " + std::to_string(label);
}

}  // namespace

std::unique_ptr<Metrics> make_multiple_choice_metrics() { return make_class_metrics({"accuracy"}); }

const TaskDescriptor& multiple_choice_descriptor() {
  static const TaskDescriptor descriptor = {
      .keys = multiple_choice_keys(),
      .rows = RowTask::kMultipleChoice,
      .head = [](const TaskArgs&) { return std::optional(Head::kMultipleChoice); },
      .make_setup = make_multiple_choice_setup,
      .pipeline = {.name = "multiple-choice",
                   .class_suffix = "ForMultipleChoice",
                   .has_peft_class = false,
                   .make_predictor = make_multiple_choice},
      .sample = "question",
      .class_text = choice_text};
  return descriptor;
}

}  // namespace finetune
