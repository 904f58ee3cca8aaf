// SPDX-License-Identifier: MIT
#include "finetune/config/tasks.h"

namespace finetune {
namespace {

constexpr std::string_view kCausalLmYaml = R"(task: clm
output_dir: run                    # checkpoints, results and the finished model

# Data: plain text in UTF-8. Without validation_file, 5 % of the training text is kept for it.
train_file: train.txt
# validation_file: validation.txt
max_seq_length: 1024               # tokens of a block; run_clm's block_size is another name for it
line_by_line: false                # true: every line is a sample of its own
# packing: true                    # with line_by_line: rows of several lines
)";

}  // namespace

const TaskKeys& causal_lm_keys() {
  static const TaskKeys keys = {
      .name = "clm",
      .title = "Continues the training of a causal language model on your own text.",
      .yaml = kCausalLmYaml,
      .keys = {"line_by_line", "keep_linebreaks", "packing", "validation_split_percentage"},
      .metric_names = {"accuracy"},
      .metrics_depend_on_data = false,
      .splits_train_file = true};
  return keys;
}

}  // namespace finetune
