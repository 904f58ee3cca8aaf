// SPDX-License-Identifier: MIT
#include "finetune/config/tasks.h"

namespace finetune {
namespace {

constexpr std::string_view kDpoYaml = R"(task: dpo
output_dir: run                    # checkpoints, results and the finished model

# Data: rows with prompt, chosen and rejected, each a text or a list of messages.
# `finetune train CONFIG --dry_run` shows what is compared.
train_file: train.jsonl
validation_split_percentage: 5     # of train_file, drawn by the seed; or name a validation_file
max_seq_length: 1024               # tokens of a prompt with its answer; longer ones are cut
beta: 0.1                          # how far the model may move from the one that it starts from
# use_peft: true                   # an adapter: learning_rate 5e-6 to 5e-5
)";

constexpr std::string_view kOrpoYaml = R"(task: orpo
output_dir: run                    # checkpoints, results and the finished model

# Data: rows with prompt, chosen and rejected, each a text or a list of messages.
train_file: train.jsonl
validation_split_percentage: 5     # of train_file, drawn by the seed; or name a validation_file
max_seq_length: 1024               # tokens of a prompt with its answer; longer ones are cut
beta: 0.1                          # weight of the odds ratio
# use_peft: true                   # an adapter: learning_rate 5e-6 to 5e-5
)";

constexpr std::string_view kKtoYaml = R"(task: kto
output_dir: run                    # checkpoints, results and the finished model

# Data: rows with prompt, completion and label (true: a good answer), or pairs of chosen and rejected.
train_file: train.jsonl
validation_split_percentage: 5     # of train_file, drawn by the seed; or name a validation_file
max_seq_length: 1024               # tokens of a prompt with its answer; longer ones are cut
beta: 0.1                          # how far the model may move from the one that it starts from
desirable_weight: 1.0
undesirable_weight: 1.0
# use_peft: true                   # an adapter: learning_rate 5e-6 to 5e-5
)";

constexpr double kLearningRate = 1e-6;  // TRL's default for all

// Keys of all tasks. Their metrics are the measures of their losses, in that order.
std::vector<std::string_view> with_common(std::vector<std::string_view> keys) {
  for (const char* key :
       {"beta", "disable_dropout", "chat_template_path", "chat_template_kwargs",
        "special_tokens_in_text", "skip_bad_rows", "validation_split_percentage"}) {
    keys.emplace_back(key);
  }
  return keys;
}

}  // namespace

const TaskKeys& dpo_keys() {
  static const TaskKeys keys = {
      .name = "dpo",
      .title = "Teaches a model to prefer one answer to another, by DPO.",
      .yaml = kDpoYaml,
      .keys =
          with_common({"loss_type", "label_smoothing", "simpo_gamma", "precompute_ref_log_probs"}),
      .metric_names = {"rewards/chosen", "rewards/rejected", "rewards/accuracies",
                       "rewards/margins", "logps/chosen", "logps/rejected"},
      .metrics_depend_on_data = false,
      .learning_rate = kLearningRate,
      .row_is_sample = false,
      .learns_classes = [](const TaskArgs&) { return false; }};
  return keys;
}

const TaskKeys& kto_keys() {
  static const TaskKeys keys = {
      .name = "kto",
      .title = "Teaches a model from answers that are good or bad, by KTO.",
      .yaml = kKtoYaml,
      .keys = with_common(
          {"loss_type", "desirable_weight", "undesirable_weight", "precompute_ref_log_probs"}),
      .metric_names = {"rewards/chosen", "rewards/rejected", "logps/chosen", "logps/rejected", "kl",
                       "rewards/margins"},
      .metrics_depend_on_data = false,
      .learning_rate = kLearningRate,
      .row_is_sample = false,
      .learns_classes = [](const TaskArgs&) { return false; }};
  return keys;
}

const TaskKeys& orpo_keys() {
  static const TaskKeys keys = {
      .name = "orpo",
      .title = "Teaches a model answers and to prefer them to others, by ORPO.",
      .yaml = kOrpoYaml,
      .keys = with_common({}),
      .metric_names = {"rewards/chosen", "rewards/rejected", "rewards/accuracies",
                       "rewards/margins", "logps/chosen", "logps/rejected", "nll_loss",
                       "log_odds_ratio", "log_odds_chosen"},
      .metrics_depend_on_data = false,
      .learning_rate = kLearningRate,
      .row_is_sample = false,
      .learns_classes = [](const TaskArgs&) { return false; }};
  return keys;
}

}  // namespace finetune
