// SPDX-License-Identifier: MIT
#include "task/sft/sft.h"

#include "task/clm/clm.h"

namespace finetune {

const TaskDescriptor& sft_descriptor() {
  static const TaskDescriptor descriptor = {
      .keys = sft_keys(),
      .rows = RowTask::kChat,
      .head = [](const TrainingArgs&) -> std::optional<Head> { return std::nullopt; },
      .make_setup = make_sft_setup,
      .pipeline = {.name = "text-generation",
                   .class_suffix = "ForCausalLM",
                   .other_suffix = "LMHeadModel",
                   .make_predictor = make_text_generator},
      .learns_words = true,
      .learns_next_words = true,
      .pads = false,
      .logs_tokens = true};
  return descriptor;
}

}  // namespace finetune
