// SPDX-License-Identifier: MIT
#include "finetune/config/tasks.h"

namespace finetune {
namespace {

constexpr std::string_view kSequenceClassificationYaml = R"(task: sequence_classification
output_dir: run                    # checkpoints, results and the finished model

# Data: JSON lines, JSON, CSV or TSV. Whole numbers and words are classes, numbers with a fraction
# make it a regression, lists several labels at once.
train_file: train.jsonl
validation_file: validation.jsonl
# validation_split_percentage: 10  # without validation_file: rows drawn by the seed
# test_file: test.jsonl            # with do_predict: true
text_column: sentence1
text_pair_column: sentence2        # leave it out where there is one text
label_column: label
max_seq_length: 128                # tokens of a sample
)";

}  // namespace

const TaskKeys& sequence_classification_keys() {
  static const TaskKeys keys = {
      .name = "sequence_classification",
      .title = "Teaches a model to classify texts or pairs of texts, or to give them a number.",
      .yaml = kSequenceClassificationYaml,
      .keys = {"text_pair_column", "label_column", "problem_type", "metric_name", "calibrate",
               "class_weights", "do_predict", "test_file", "validation_split_percentage"},
      .metric_names = {"accuracy", "f1", "matthews_correlation", "combined_score", "precision",
                       "recall", "roc_auc", "mse", "pearson", "spearmanr"},
      .learns_classes = [](const TaskArgs& args) {
        return args.problem_type.value_or("single_label_classification") ==
               "single_label_classification";
      }};
  return keys;
}

}  // namespace finetune
