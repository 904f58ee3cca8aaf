// SPDX-License-Identifier: MIT
#include "finetune/config/tasks.h"

namespace finetune {
namespace {

constexpr std::string_view kTokenClassificationYaml = R"(task: token_classification
output_dir: run                    # checkpoints, results and the finished model

# Data: JSON lines or JSON with a list of words and a list of their labels in each row, or CoNLL
# text (*.conll).
train_file: train.jsonl
validation_file: validation.jsonl
# validation_split_percentage: 10  # without validation_file: rows drawn by the seed
text_column: tokens
label_column: ner_tags
max_seq_length: 128                # tokens of a sample
)";

}  // namespace

const TaskKeys& token_classification_keys() {
  static const TaskKeys keys = {
      .name = "token_classification",
      .title = "Teaches a model to label words.",
      .yaml = kTokenClassificationYaml,
      .keys = {"label_column", "class_weights", "do_predict", "test_file",
               "validation_split_percentage", "label_all_tokens", "return_entity_level_metrics"},
      .metric_names = {"precision", "recall", "f1", "accuracy", "overall_precision",
                       "overall_recall", "overall_f1", "overall_accuracy"}};
  return keys;
}

}  // namespace finetune
