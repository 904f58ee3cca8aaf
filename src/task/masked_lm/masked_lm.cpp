// SPDX-License-Identifier: MIT
#include "task/masked_lm/masked_lm.h"

#include "task/predict/fill_mask.h"

namespace finetune {

const TaskDescriptor& masked_lm_descriptor() {
  static const TaskDescriptor descriptor = {
      .keys = masked_lm_keys(),
      .rows = RowTask::kText,
      .head = [](const TaskArgs&) -> std::optional<Head> { return std::nullopt; },
      .make_setup = make_masked_lm_setup,
      .pipeline = {.name = "fill-mask",
                   .class_suffix = "ForMaskedLM",
                   .has_peft_class = false,
                   .make_predictor = make_fill_mask},
      .learns_words = true,
      .reports_perplexity = true};
  return descriptor;
}

}  // namespace finetune
