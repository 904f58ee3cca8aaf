// SPDX-License-Identifier: MIT
#include "finetune/config/tasks.h"

namespace finetune {
namespace {

constexpr std::string_view kSftYaml = R"(task: sft
output_dir: run                    # checkpoints, results and the finished model

# Data: rows with messages (role, content), conversations (from, value), prompt and completion,
# instruction and output, or text. `finetune train CONFIG --dry_run` shows what is learned.
train_file: train.jsonl
validation_split_percentage: 5     # of train_file, drawn by the seed; or name a validation_file
assistant_only_loss: true          # learn the answers, not the questions
max_seq_length: 1024               # tokens of a sample; TRL's max_length is another name for it
packing: false                     # true: several samples share a row
# chat_template_path: chatml       # for a model without a chat template
)";

}  // namespace

const TaskKeys& sft_keys() {
  static const TaskKeys keys = {
      .name = "sft",
      .title = "Teaches a causal language model to answer, from conversations.",
      .yaml = kSftYaml,
      .keys = {"assistant_only_loss", "completion_only_loss", "train_turns", "chat_template_path",
               "chat_template_kwargs", "instruction_template", "response_template",
               "special_tokens_in_text", "skip_bad_rows", "generate_samples", "packing",
               "packing_strategy", "validation_split_percentage"},
      .metric_names = {"mean_token_accuracy", "entropy"},
      .metrics_depend_on_data = false,
      .row_is_sample = false};
  return keys;
}

}  // namespace finetune
