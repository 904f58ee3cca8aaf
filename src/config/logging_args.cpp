// SPDX-License-Identifier: MIT
#include "finetune/config/logging_args.h"

#include "config/words.h"
#include "finetune/config/fields.h"

namespace finetune {

void LoggingArgs::describe(FieldList& field) {
  const std::vector<std::string> levels = {"debug", "info",     "warning",
                                           "error", "critical", "passive"};
  field.section("Logging");
  field("logging_strategy", &LoggingArgs::logging_strategy, "When metrics are logged.",
        {.choices = {"no", "steps", "epoch"}});
  field("logging_steps", &LoggingArgs::logging_steps,
        "Updates between two log lines; below 1 a share of all updates.",
        {.range = {.min = 0}, .steps = true});
  field("logging_first_step", &LoggingArgs::logging_first_step, "Log the first update too.");
  field("log_level", &LoggingArgs::log_level, "Least severity that is printed.",
        {.choices = levels, .spellings = {{"detail", "debug"}}, .resume = ResumePolicy::kFree});
  field("log_level_replica", &LoggingArgs::log_level_replica,
        "Least severity that other processes print; of warnings, rank 0 prints them.",
        {.choices = levels, .spellings = {{"detail", "debug"}}, .resume = ResumePolicy::kFree});
  field("disable_tqdm", &LoggingArgs::disable_tqdm,
        "Show no progress bar; unset shows one on terminals and in notebooks.",
        {.resume = ResumePolicy::kFree});
  field("progress", &LoggingArgs::progress,
        "Progress display: auto (as disable_tqdm says), a bar, plain lines, JSON lines, or none.",
        {.choices = {"auto", "bar", "plain", "json", "none"}, .resume = ResumePolicy::kFree});
  field("model_card", &LoggingArgs::model_card,
        "Write README.md, a model card for the Hugging Face hub, with the finished model.",
        {.resume = ResumePolicy::kFree});
  field("report_to", &LoggingArgs::report_to,
        "Who receives metrics: tensorboard, wandb (a folder for `wandb sync`) or mlflow (a file "
        "store), the last two by their Python packages at the end of each session; all means "
        "tensorboard.",
        {.choices = {"none", "all", "tensorboard", "azure_ml", "clearml", "codecarbon", "comet_ml",
                     "dagshub", "dvclive", "flyte", "kubeflow", "mlflow", "neptune", "swanlab",
                     "trackio", "wandb"},
         .spellings = {{"null", "none"}},
         .available = {"none", "tensorboard", "wandb", "mlflow", "all"},
         .reason = kNotYet,
         .resume = ResumePolicy::kFree});
  field("logging_dir", &LoggingArgs::logging_dir,
        "Folder of the TensorBoard files; unset is output_dir/runs.",
        {.resume = ResumePolicy::kFree, .path = PathKind::kPath});
  field("run_name", &LoggingArgs::run_name, "A name for the run, kept in its records.",
        {.resume = ResumePolicy::kFree});
  field("include_num_input_tokens_seen", &LoggingArgs::include_num_input_tokens_seen,
        "Log how many tokens were read.",
        {.choices = {"no", "all", "non_padding"}, .spellings = {{"true", "all"}, {"false", "no"}}});
  field("project", &LoggingArgs::project, "Project of wandb, experiment of MLflow.",
        {.resume = ResumePolicy::kFree});
}

void EvaluationArgs::describe(FieldList& field) {
  field.section("Evaluation and the best model");
  field("eval_strategy", &EvaluationArgs::eval_strategy, "When the model is evaluated.",
        {.choices = {"no", "steps", "epoch"}});
  field("eval_steps", &EvaluationArgs::eval_steps,
        "Updates between two evaluations; below 1 a share of all updates; unset takes "
        "logging_steps.",
        {.range = {.min = 0}, .steps = true});
  field("eval_delay", &EvaluationArgs::eval_delay,
        "Updates (or epochs, with eval_strategy epoch) before the first evaluation.",
        {.range = {.min = 0}, .steps = true});
  field("eval_on_start", &EvaluationArgs::eval_on_start, "Evaluate before the first update.");
  field("prediction_loss_only", &EvaluationArgs::prediction_loss_only,
        "Compute the loss only, no accuracy.");
  field("load_best_model_at_end", &EvaluationArgs::load_best_model_at_end,
        "Finish with the best checkpoint's weights.");
  field("metric_for_best_model", &EvaluationArgs::metric_for_best_model,
        "Metric that decides which checkpoint is best; unset takes the loss where one is needed.");
  field("greater_is_better", &EvaluationArgs::greater_is_better,
        "Whether more is better; unset says so unless the metric's name ends in \"loss\".");
  field("early_stopping_patience", &EvaluationArgs::early_stopping_patience,
        "Stop after N evaluations without a better metric.", {.range = {.min = 1}});
  field("early_stopping_threshold", &EvaluationArgs::early_stopping_threshold,
        "How much better a metric must be to count.", {.range = {.min = 0}});
}

}  // namespace finetune
