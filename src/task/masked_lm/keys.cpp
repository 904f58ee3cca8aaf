// SPDX-License-Identifier: MIT
#include "finetune/config/tasks.h"

namespace finetune {
namespace {

constexpr std::string_view kMaskedLmData = R"(task: mlm
output_dir: run                    # checkpoints, results and the finished model

# Data: plain text in UTF-8. Without validation_file, 5 % of the training text is kept for it.
train_file: train.txt
# validation_file: validation.txt
max_seq_length: 128                # tokens of a sample
line_by_line: false                # true: every line is a sample of its own
mlm_probability: 0.15
)";

}  // namespace

const TaskKeys& masked_lm_keys() {
  static const std::string yaml =
      with_fresh_model(kMaskedLmData, "roberta                # or bert, xlm-roberta, big_bird");
  static const TaskKeys keys = {
      .name = "mlm",
      .title = "Trains a masked language model from scratch on your own text.",
      .yaml = yaml,
      .trains_from_scratch = true,
      .keys = {"line_by_line", "packing", "mlm_probability", "whole_word_mask",
               "validation_split_percentage"},
      .metric_names = {"accuracy"},
      .metrics_depend_on_data = false,
      .splits_train_file = true};
  return keys;
}

}  // namespace finetune
