// SPDX-License-Identifier: MIT
#include "train/loop/evaluations.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "train/save/agreement.h"
#include "train/save/best_model.h"

namespace finetune {

using Json = nlohmann::ordered_json;

bool Evaluations::evaluate_first() {
  const std::optional<Json> metrics = evaluate_weights();
  if (metrics) log_.log(*metrics);
  return metrics.has_value();
}

bool Evaluations::evaluate_if_due() {
  run_.has_new_best = false;
  RunState& state = run_.state;
  if (!state.evaluation_pending && !run_.evaluation_is_due()) return true;
  state.evaluation_pending = true;
  const std::optional<Json> metrics = evaluate_weights();
  if (!metrics) return false;
  conclude(*metrics);
  state.evaluation_pending = false;
  return true;
}

std::optional<Json> Evaluations::evaluate_exported(bool& is_new) {
  std::optional<Json> metrics = logged_metrics(run_.trainer_state, run_.weights_step());
  is_new = !metrics;
  files_of_step_ =
      static_cast<int64_t>(broadcast(run_.world(), static_cast<double>(files_of_step_)));
  if (is_new) return evaluate_weights();
  // The prediction files must be those of the exported weights.
  const bool has_files = run_.parts.setup->make_results(Split::kValidation).files != nullptr;
  if (has_files && files_of_step_ != run_.weights_step() && !evaluate_weights()) {
    return std::nullopt;
  }
  return metrics;
}

std::optional<Json> Evaluations::predict() {
  std::optional<EvaluationResult> result = memory_.run_evaluation(Split::kTest);
  if (!result) return std::nullopt;
  if (result->files && run_.world().is_first()) {
    result->files->write(run_.files, run_.args.output_dir);
  }
  result->metrics["predict_samples"] = run_.parts.test_data->size();
  return result->metrics;
}

void Evaluations::rolled_back() {
  run_.has_new_best = false;
  files_of_step_ = -1;
}

std::optional<Json> Evaluations::evaluate_weights() {
  std::optional<EvaluationResult> result = memory_.run_evaluation(Split::kValidation);
  if (!result) return std::nullopt;
  const std::string step = std::to_string(run_.state.step);
  log::info(describe_metrics(result->metrics) + " at step " + step);
  if (!result->files) return result->metrics;
  try {
    if (run_.world().is_first()) result->files->write(run_.files, run_.args.output_dir);
    files_of_step_ = run_.weights_step();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kIo || run_.is_last_step()) throw;
    log::warning("the predictions of step " + step +
                 " are not written, training continues: " + std::string(error.what()));
  }
  return result->metrics;
}

void Evaluations::conclude(const Json& metrics) {
  log_.log(metrics);
  const TrainingArgs& args = run_.args;
  if (!args.metric_for_best_model) return;
  const std::string key = best_metric_key(args);
  if (!metrics.contains(key)) {
    throw Error(ErrorKind::kConfig, run_.config.where("metric_for_best_model") +
                                        ": metric_for_best_model: the evaluation has no '" + key +
                                        "'; it has " + describe_metrics(metrics));
  }
  const double value = metrics[key].is_number() ? metrics[key].get<double>() : std::nan("");
  run_.schedule->observe(value);
  const bool greater = args.greater_is_better.value_or(false);
  RunState& state = run_.state;
  TrainerState& record = run_.trainer_state;
  const auto& best = record.best_metric;
  const bool better = std::isfinite(value) && (!best || (greater ? value > *best : value < *best));
  if (args.early_stopping_patience) {
    const bool counts =
        better && (!best || std::abs(value - *best) > args.early_stopping_threshold);
    state.early_stopping_counter = counts ? 0 : state.early_stopping_counter + 1;
    if (state.early_stopping_counter >= *args.early_stopping_patience) {
      state.stop_early = true;
      log::info("early stopping: " + key + " has not improved in " +
                std::to_string(state.early_stopping_counter) + " evaluations");
    }
  }
  if (!better) return;
  record.best_metric = value;
  if (args.save_strategy != "no") record.best_global_step = state.step;
  run_.has_new_best = true;
}

}  // namespace finetune
