// SPDX-License-Identifier: MIT
#include "finetune/config/logging_args.h"

#include "config/keys/words.h"
#include "finetune/config/fields.h"

namespace finetune {

void LoggingArgs::describe(FieldList& field) {
  const std::vector<std::string> levels = {"debug", "info",     "warning",
                                           "error", "critical", "passive"};
  field.section("Logging");
  field("logging_strategy", &LoggingArgs::logging_strategy, "When to log metrics.",
        {.choices = {"no", "steps", "epoch"}});
  field("logging_steps", &LoggingArgs::logging_steps,
        "Number of updates between log lines; a value below 1 is a fraction of all updates.",
        {.range = {.min = 0}, .steps = true});
  field("logging_first_step", &LoggingArgs::logging_first_step, "Log the first update too.");
  field("log_level", &LoggingArgs::log_level, "Lowest severity of messages to print.",
        {.choices = levels, .spellings = {{"detail", "debug"}}, .resume = ResumePolicy::kFree});
  field("log_level_replica", &LoggingArgs::log_level_replica,
        "Lowest severity of messages that ranks above 0 print; only rank 0 prints warnings.",
        {.choices = levels, .spellings = {{"detail", "debug"}}, .resume = ResumePolicy::kFree});
  field("disable_tqdm", &LoggingArgs::disable_tqdm,
        "Show no progress bar; unset: a bar on terminals and in notebooks.",
        {.resume = ResumePolicy::kFree});
  field("progress", &LoggingArgs::progress,
        "Progress display: auto (a bar or lines, see disable_tqdm), bar, plain lines, JSON lines, "
        "or none.",
        {.choices = {"auto", "bar", "plain", "json", "none"}, .resume = ResumePolicy::kFree});
  field("model_card", &LoggingArgs::model_card,
        "Write README.md, a model card for the Hugging Face hub, with the finished model.",
        {.resume = ResumePolicy::kFree});
  field("export_merged", &LoggingArgs::export_merged,
        "At the end, also write the model with its adapter merged into it, as `finetune export` "
        "does, to output_dir/export/merged: the type of its weights; unset: nothing is written.",
        {.choices = {"auto", "f32", "f16", "bf16"}, .resume = ResumePolicy::kFree});
  field("export_gguf", &LoggingArgs::export_gguf,
        "The same as output_dir/export/model.gguf, for llama.cpp and Ollama.",
        {.choices = {"auto", "f32", "f16", "bf16", "q8_0", "q4_0"}, .resume = ResumePolicy::kFree});
  field("report_to", &LoggingArgs::report_to,
        "Trackers of metrics: tensorboard, wandb (a folder for `wandb sync`), mlflow (a file "
        "store), or a list; wandb and mlflow are written by their Python packages at the end of "
        "each session; all means tensorboard.",
        {.choices = {"none", "all", "tensorboard", "azure_ml", "clearml", "codecarbon", "comet_ml",
                     "dagshub", "dvclive", "flyte", "kubeflow", "mlflow", "neptune", "swanlab",
                     "trackio", "wandb"},
         .spellings = {{"null", "none"}},
         .available = {"none", "tensorboard", "wandb", "mlflow", "all"},
         .reason = kNotYet,
         .resume = ResumePolicy::kFree});
  field("logging_dir", &LoggingArgs::logging_dir,
        "Folder of the TensorBoard files; unset: output_dir/runs.",
        {.resume = ResumePolicy::kFree, .path = PathKind::kPath});
  field("run_name", &LoggingArgs::run_name, "Name of the run in its records and in trackers.",
        {.resume = ResumePolicy::kFree});
  field("include_num_input_tokens_seen", &LoggingArgs::include_num_input_tokens_seen,
        "Log the number of tokens read.",
        {.choices = {"no", "all", "non_padding"}, .spellings = {{"true", "all"}, {"false", "no"}}});
  field("project", &LoggingArgs::project, "Project in wandb, experiment in MLflow.",
        {.resume = ResumePolicy::kFree});
}

void EvaluationArgs::describe(FieldList& field) {
  field.section("Evaluation and the best model");
  field("eval_strategy", &EvaluationArgs::eval_strategy, "When to evaluate.",
        {.choices = {"no", "steps", "epoch"}});
  field("eval_steps", &EvaluationArgs::eval_steps,
        "Number of updates between evaluations; a value below 1 is a fraction of all updates; "
        "unset: logging_steps.",
        {.range = {.min = 0}, .steps = true});
  field("eval_delay", &EvaluationArgs::eval_delay,
        "Number of updates before the first evaluation (of epochs with eval_strategy epoch).",
        {.range = {.min = 0}, .steps = true});
  field("eval_on_start", &EvaluationArgs::eval_on_start, "Evaluate before the first update.");
  field("prediction_loss_only", &EvaluationArgs::prediction_loss_only,
        "Compute only the loss in evaluations, no other metric.");
  field("load_best_model_at_end", &EvaluationArgs::load_best_model_at_end,
        "Export the best checkpoint's weights at the end, instead of the last ones.");
  field("metric_for_best_model", &EvaluationArgs::metric_for_best_model,
        "Metric that decides which checkpoint is best; unset: the loss if one is needed.");
  field("greater_is_better", &EvaluationArgs::greater_is_better,
        "Prefer larger values of metric_for_best_model; unset: true unless its name ends in "
        "\"loss\".");
  field("early_stopping_patience", &EvaluationArgs::early_stopping_patience,
        "Number of evaluations without a better metric after which the run ends.",
        {.range = {.min = 1}});
  field("early_stopping_threshold", &EvaluationArgs::early_stopping_threshold,
        "Minimum improvement of the metric that counts as better.", {.range = {.min = 0}});
}

}  // namespace finetune
