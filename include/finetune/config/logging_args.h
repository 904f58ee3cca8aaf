// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace finetune {

class FieldList;

// What is printed and recorded. describe() documents the keys.
struct LoggingArgs {
  std::string logging_strategy = "steps";
  double logging_steps = 500;  // below 1: fraction of all steps
  bool logging_first_step = false;
  std::string log_level = "passive";
  std::string log_level_replica = "warning";
  std::optional<bool> disable_tqdm;
  std::string progress = "auto";
  bool model_card = true;
  std::optional<std::string> export_merged;
  std::optional<std::string> export_gguf;
  // After loading: {"none"}, or the chosen ones of "tensorboard", "wandb" and "mlflow".
  std::vector<std::string> report_to = {"none"};
  std::optional<std::string> logging_dir;  // unset: output_dir/runs
  std::optional<std::string> run_name;
  std::string include_num_input_tokens_seen = "no";
  std::string project = "huggingface";

  static void describe(FieldList& field);
};

// When and how the model is evaluated, and which checkpoint counts as the best.
struct EvaluationArgs {
  std::string eval_strategy = "no";
  std::optional<double> eval_steps;  // set after loading if eval_strategy is "steps"
  double eval_delay = 0;             // steps, or epochs with eval_strategy "epoch"
  bool eval_on_start = false;
  bool prediction_loss_only = false;
  bool load_best_model_at_end = false;
  std::optional<std::string> metric_for_best_model;  // set after loading if it is needed
  std::optional<bool> greater_is_better;             // set with metric_for_best_model
  std::optional<int64_t> early_stopping_patience;
  double early_stopping_threshold = 0.0;

  static void describe(FieldList& field);
};

}  // namespace finetune
