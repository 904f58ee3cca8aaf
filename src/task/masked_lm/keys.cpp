// SPDX-License-Identifier: MIT
#include "finetune/config/tasks.h"

namespace finetune {
namespace {

constexpr std::string_view kMaskedLmYaml = R"(task: mlm
output_dir: run                    # checkpoints, results and the finished model

# Data: plain text in UTF-8. Without validation_file, 5 % of the training text is kept for it.
train_file: train.txt
# validation_file: validation.txt
max_seq_length: 128                # tokens of a sample
line_by_line: false                # true: every line is a sample of its own
mlm_probability: 0.15

# A fresh model. Its tokenizer is made once, before:
#   finetune tokenizer train --type byte_level_bpe --vocab_size 8000 --output tokenizer train.txt
model_type: roberta                # or bert, xlm-roberta, big_bird
tokenizer_name: ./tokenizer
config_overrides: {hidden_size: 256, num_hidden_layers: 4, num_attention_heads: 4, intermediate_size: 1024}
# To go on with a trained model instead, replace these three by:
# model_name_or_path: ./my-model
)";

}  // namespace

const TaskKeys& masked_lm_keys() {
  static const TaskKeys keys = {
      .name = "mlm",
      .title = "Trains a masked language model from scratch on your own text.",
      .yaml = kMaskedLmYaml,
      .trains_from_scratch = true,
      .keys = {"line_by_line", "packing", "mlm_probability", "whole_word_mask",
               "validation_split_percentage"},
      .metric_names = {"accuracy"},
      .metrics_depend_on_data = false,
      .splits_train_file = true};
  return keys;
}

}  // namespace finetune
