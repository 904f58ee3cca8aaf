// SPDX-License-Identifier: MIT
#include "task/clm/clm.h"

#include "task/generate/text_generation.h"

namespace finetune {

const TaskDescriptor& causal_lm_descriptor() {
  static const TaskDescriptor descriptor = {
      .keys = causal_lm_keys(),
      .rows = RowTask::kText,
      .head = [](const TaskArgs&) -> std::optional<Head> { return std::nullopt; },
      .make_setup = make_causal_lm_setup,
      .pipeline = text_generation_pipeline(),
      .learns_words = true,
      .learns_next_words = true,
      .pads = false,
      .logs_tokens = true,
      .reports_perplexity = true};
  return descriptor;
}

}  // namespace finetune
