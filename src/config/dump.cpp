// SPDX-License-Identifier: MIT
#include "finetune/config/dump.h"

#include <nlohmann/json.hpp>

#include "config/text.h"
#include "config/values.h"
#include "finetune/base/error.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kColumns = 100;

std::string sentence_of(const Field& field) {
  const std::string limits = limits_of(field);
  return field.help + (limits.empty() ? "" : " " + limits);
}

// In a table cell '|' would end the cell.
std::string cell(const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped += c == '|' ? std::string("\\|") : std::string(1, c);
  return escaped;
}

}  // namespace

std::string defaults_yaml() {
  std::string text = "# Every key of finetune with its default.\n";
  const TrainingArgs defaults;
  std::string section;
  for (const Field& field : all_fields()) {
    if (field.section != section) {
      section = field.section;
      text += "\n# ---- " + section + " ----\n";
    }
    text += '\n' + wrap(sentence_of(field), "# ", kColumns);
    text += field.name + ": " + to_yaml(field, value_of(field, defaults)) + '\n';
  }
  return text;
}

std::string describe_keys_markdown() {
  std::string text;
  const TrainingArgs defaults;
  std::string section;
  for (const Field& field : all_fields()) {
    if (field.section != section) {
      section = field.section;
      text += (text.empty() ? "" : "\n") + std::string("**") + section +
              "**\n\n| key | default | meaning |\n|---|---|---|\n";
    }
    text += "| `" + field.name + "` | `" + cell(to_yaml(field, value_of(field, defaults))) +
            "` | " + cell(sentence_of(field)) + " |\n";
  }
  return text;
}

std::string keys_help() {
  std::string text;
  const TrainingArgs defaults;
  std::string section;
  for (const Field& field : all_fields()) {
    if (field.section != section) {
      section = field.section;
      text += (text.empty() ? "" : "\n") + section + ":\n";
    }
    text += "  --" + field.name + " <" + type_name(field) + "> (" +
            to_yaml(field, value_of(field, defaults)) + ")\n";
    text += wrap(sentence_of(field), "      ", kColumns);
  }
  return text;
}

std::string dump_resolved(const LoadedConfig& config) {
  const Json values = to_json(config.args);
  std::string text;
  for (const Field& field : all_fields()) {
    text += field.name + ": " + to_yaml(field, values.at(field.name));
    if (config.is_set(field.name)) text += "  # " + config.where(field.name);
    text += '\n';
  }
  return text;
}

std::string initial_yaml(std::string_view task) {
  if (task != "mlm") {
    throw Error(ErrorKind::kUsage,
                "the task '" + std::string(task) + "' is not available in this version; mlm is");
  }
  return R"(# Trains a RoBERTa masked language model from scratch on your own text.
# Start it, and start it again after any interruption, with: finetune train THIS_FILE
# All keys and their defaults: finetune config defaults
# Relative paths start from the folder of this file.

task: mlm
output_dir: run                    # checkpoints, results and the finished model

# Data: plain text in UTF-8. Without validation_file, 5 % of the training text is kept for it.
train_file: train.txt
# validation_file: validation.txt
max_seq_length: 128                # tokens of a sample
line_by_line: false                # true: every line is a sample of its own
mlm_probability: 0.15

# A fresh model. Its tokenizer is made once, before:
#   finetune tokenizer train --type byte_level_bpe --vocab_size 8000 --output tokenizer train.txt
model_type: roberta
tokenizer_name: ./tokenizer
config_overrides: {hidden_size: 256, num_hidden_layers: 4, num_attention_heads: 4, intermediate_size: 1024}
# To go on with a trained model instead, replace these three by:
# model_name_or_path: ./my-model

# One update sees per_device_train_batch_size x gradient_accumulation_steps samples.
num_train_epochs: 3
per_device_train_batch_size: 16
gradient_accumulation_steps: 1
learning_rate: 1e-4
warmup_steps: 0.06                 # below 1: a share of all updates
weight_decay: 0.01
seed: 42

# What is shown, evaluated and saved, in updates.
logging_steps: 50
eval_strategy: steps
eval_steps: 500
save_steps: 500
save_total_limit: 2                # complete checkpoints that are kept
report_to: tensorboard             # files in run/runs; none: no such files
)";
}

}  // namespace finetune
