// SPDX-License-Identifier: MIT
#include "train/loop/evaluations.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/log.h"
#include "finetune/base/model_files.h"
#include "finetune/base/printable.h"
#include "finetune/tensor/out_of_memory.h"
#include "train/save/agreement.h"
#include "train/save/best_model.h"

namespace finetune {

using Json = nlohmann::ordered_json;

namespace {

// Returns a text for a line of the log.
std::string in_a_line(const std::string& text) { return printable_line(shortened(text, 160)); }

void log_samples(const std::vector<Json>& samples) {
  for (const Json& sample : samples) {
    const bool is_plain = !sample.contains("messages");
    const Json& messages = is_plain ? sample : sample.at("messages");
    const Json question =
        is_plain ? sample.at("prompt") : messages[messages.size() - 2].at("content");
    const Json& answer = is_plain ? sample.at("completion") : messages.back().at("content");
    log::info("sample: " +
              in_a_line(question.is_string() ? question.get<std::string>() : question.dump()) +
              "\n     -> " + in_a_line(answer.get<std::string>()) +
              (sample.at("finish_reason") == "stop" ? "" : " (does not stop)"));
  }
}

// Replaces the lines of this step; those of others stay if their evaluation is in the log.
void write_samples(const TrainingRun& run, const std::vector<Json>& samples) {
  const std::string path = join_path(run.args.output_dir, kGeneratedSamplesFile);
  std::string text;
  std::istringstream lines(run.files.exists(path) ? run.files.read_all(path) : "");
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) continue;
    const auto step = json["step"].get<int64_t>();
    if (step != run.weights_step() && logged_metrics(run.trainer_state, step)) text += line + "\n";
  }
  for (size_t i = 0; i < samples.size(); ++i) {
    Json line = {{"step", run.weights_step()}, {"sample", i + 1}};
    line.update(samples[i]);
    text += line.dump() + "\n";
  }
  run.files.make_directories(run.args.output_dir);
  run.files.write_atomically(path, text);
}

}  // namespace

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
  if (!generate_samples()) return std::nullopt;
  if (!result->files) return result->metrics;
  write_files("predictions", [&] {
    if (run_.world().is_first()) result->files->write(run_.files, run_.args.output_dir);
    files_of_step_ = run_.weights_step();
  });
  return result->metrics;
}

void Evaluations::write_files(const std::string& what, const std::function<void()>& write) const {
  try {
    write();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kIo || run_.is_last_step()) throw;
    log::warning("the " + what + " of step " + std::to_string(run_.state.step) +
                 " are not written, training continues: " + error.what());
  }
}

bool Evaluations::generate_samples() {
  if (run_.args.generate_samples == 0) return true;
  bool is_stopped = false;
  const auto generate = [&] {
    try {
      const std::vector<Json> samples = run_.parts.setup->generate_samples(
          *run_.parts.model, run_.parts.device, run_.parts.copied_files);
      write_files("samples", [&] { write_samples(run_, samples); });
      log_samples(samples);
    } catch (const Interrupted&) {
      is_stopped = true;
    } catch (...) {
      if (!is_lack_of_memory(std::current_exception())) throw;
      log::warning("out of memory: no samples are generated at step " +
                   std::to_string(run_.state.step) + "; generate_samples: 0 asks for none");
    }
  };
  if (run_.parts.divided) {
    run_.parts.divided->lead(generate);
  } else if (run_.world().is_first()) {
    generate();
  }
  return broadcast(run_.world(), is_stopped ? 1 : 0) == 0;
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
