// SPDX-License-Identifier: MIT
#include "finetune/config/tasks.h"

namespace finetune {
namespace {

constexpr std::string_view kRewardYaml = R"(task: reward
output_dir: run                    # checkpoints, results and the finished model

# Data: JSON lines with chosen and rejected, each a text or a list of messages, with prompt where
# both share one, and with margin where a pair has one.
train_file: train.jsonl
validation_file: validation.jsonl
# validation_split_percentage: 10  # without validation_file: rows drawn by the seed
max_seq_length: 1024               # longer pairs are left out
center_rewards_coefficient: 0.01
)";

}  // namespace

const TaskKeys& reward_keys() {
  static const TaskKeys keys = {
      .name = "reward",
      .title = "Teaches a model to reward the better of two answers.",
      .yaml = kRewardYaml,
      .keys = {"center_rewards_coefficient", "chat_template_path", "chat_template_kwargs",
               "special_tokens_in_text", "validation_split_percentage"},
      .metric_names = {"accuracy", "margin", "min_reward", "mean_reward", "max_reward"},
      .metrics_depend_on_data = false,
      .learns_classes = [](const TaskArgs&) { return false; }};
  return keys;
}

}  // namespace finetune
