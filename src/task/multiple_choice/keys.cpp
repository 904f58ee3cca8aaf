// SPDX-License-Identifier: MIT
#include "finetune/config/tasks.h"

namespace finetune {
namespace {

constexpr std::string_view kMultipleChoiceYaml = R"(task: multiple_choice
output_dir: run                    # checkpoints, results and the finished model

# Data: JSON lines, JSON, CSV or TSV. The label counts the choices from 0.
train_file: train.jsonl
validation_file: validation.jsonl
# validation_split_percentage: 10  # without validation_file: rows drawn by the seed
context_column: question
choice_columns: [choice0, choice1, choice2, choice3, choice4]
label_column: label
max_seq_length: 128                # tokens of a question with one of its choices
)";

}  // namespace

const TaskKeys& multiple_choice_keys() {
  static const TaskKeys keys = {.name = "multiple_choice",
                                .title = "Teaches a model to choose an answer.",
                                .yaml = kMultipleChoiceYaml,
                                .keys = {"label_column", "context_column", "choice_columns",
                                         "do_predict", "test_file", "validation_split_percentage"},
                                .metric_names = {"accuracy"}};
  return keys;
}

}  // namespace finetune
