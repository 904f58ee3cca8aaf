// SPDX-License-Identifier: MIT
#include "finetune/config/tasks.h"

namespace finetune {
namespace {

constexpr std::string_view kDecisionYaml = R"(task: decision
output_dir: run                    # checkpoints, results and the finished model

# Data: JSON lines {"state", "questions": {name: {type, instructions, criteria}}, "expected": {name:
# answer}}, or with probabilities {"gold": {name: {"probabilities": {...}}}}; or columns text,
# question, options, answer.
train_file: train.jsonl
validation_file: validation.jsonl
# validation_split_percentage: 10  # without validation_file: rows drawn by the seed
max_seq_length: 512                # longer questions are left out
metric_for_best_model: eval_brier
)";

}  // namespace

const TaskKeys& decision_keys() {
  static const TaskKeys keys = {
      .name = "decision",
      .title = "Teaches a model to answer typed questions with probabilities.",
      .yaml = kDecisionYaml,
      .keys = {"calibrate", "chat_template_path", "decision_head", "decision_labels",
               "decision_template_path", "shuffle_options", "validation_split_percentage"},
      .metric_names = {"accuracy", "brier", "ece", "nll", "score_mae", "temperature_noul",
                       "temperature_choice", "temperature_score"},
      .metrics_depend_on_data = false,
      .row_is_sample = false};
  return keys;
}

}  // namespace finetune
