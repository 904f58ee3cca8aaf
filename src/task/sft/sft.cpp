// SPDX-License-Identifier: MIT
#include "task/sft/sft.h"

#include "task/generate/text_generation.h"

namespace finetune {

const TaskDescriptor& sft_descriptor() {
  static const TaskDescriptor descriptor = {
      .keys = sft_keys(),
      .rows = RowTask::kChat,
      .head = [](const TaskArgs&) -> std::optional<Head> { return std::nullopt; },
      .make_setup = make_sft_setup,
      .pipeline = text_generation_pipeline(),
      .learns_words = true,
      .learns_next_words = true,
      .pads = false,
      .logs_tokens = true};
  return descriptor;
}

}  // namespace finetune
