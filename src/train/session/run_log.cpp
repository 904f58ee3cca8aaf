// SPDX-License-Identifier: MIT
#include "train/session/run_log.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/report/session_log.h"
#include "finetune/task/tasks.h"

namespace finetune {

using Json = nlohmann::ordered_json;

void RunLog::open() {
  open_events();
  if (!run_.world().is_first()) return;
  if (!metrics_) {
    metrics_ =
        std::make_unique<MetricsFile>(run_.files, join_path(run_.args.output_dir, kMetricsFile));
  }
  metrics_->match(run_.trainer_state.log_history);
}

void RunLog::open_events() {
  events_.reset();
  const TrainingArgs& args = run_.args;
  if (!args.reports_to("tensorboard") || !run_.world().is_first()) return;
  const std::string runs = args.logging_dir.value_or(join_path(args.output_dir, "runs"));
  const int64_t step = run_.state.step;
  try {
    if (!args.logging_dir) run_.files.refuse_link(runs);
    const std::string folder = tensorboard_folder(run_.files, runs);
    run_.files.make_directories(folder);
    events_ = std::make_unique<EventWriter>(run_.files, folder, step > 0 ? step + 1 : -1);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kIo || step == 0) throw;  // a new run has nothing to lose yet
    log::warning("this session is not written for TensorBoard, training continues: " +
                 std::string(error.what()));
  }
}

// A machine that was suspended still writes for a moment after another one has taken over.
void RunLog::restore_metrics() {
  if (!metrics_) return;
  run_.storage.folder().check_before_commit();
  if (metrics_->is_changed()) metrics_->match(run_.trainer_state.log_history);
}

void RunLog::sync() {
  if (!metrics_) return;
  restore_metrics();
  metrics_->sync();
}

void RunLog::log(Json values) {
  TrainerState& record = run_.trainer_state;
  record.epoch = run_.epoch();
  record.global_step = run_.state.step;
  if (run_.args.include_num_input_tokens_seen != "no") {
    values["num_input_tokens_seen"] = run_.state.tokens_seen;
  }
  if (task_of(run_.args.task).logs_tokens) values["num_tokens"] = run_.state.tokens_seen;
  restore_metrics();
  const Json entry = record.log(std::move(values));
  if (metrics_) {
    const double speed = std::round(watch_.tokens_per_second() * 10) / 10;
    metrics_->append(entry, {.unix_time = unix_seconds(),
                             .session = run_.storage.folder().session_log().session(),
                             .tokens_per_second = speed > 0 ? std::optional(speed) : std::nullopt,
                             .memory_mib = watch_.peak_memory_mib()});
  }
  if (!events_) return;
  for (const auto& [key, value] : entry.items()) {
    if (key != "step" && value.is_number()) {
      events_->add_scalar(tensorboard_tag(key), value.get<double>(), run_.state.step);
    }
  }
  events_->flush();
}

void RunLog::log_window() {
  RunState& state = run_.state;
  const auto steps = static_cast<double>(state.step - state.window_first_step);
  const double loss = state.window_loss / steps;
  Json values;
  values["loss"] = loss;
  values["grad_norm"] = state.last_grad_norm;
  values["learning_rate"] = state.last_learning_rate;
  for (const auto& [name, mean] : window_measures()) {
    if (!std::isnan(mean)) values[name] = mean;
  }
  close_window();
  log(std::move(values));
  run_.progress.log(state.step, {.loss = loss,
                                 .learning_rate = state.last_learning_rate,
                                 .tokens_per_second = {},
                                 .memory_mib = {},
                                 .cost = {},
                                 .epoch = run_.epoch(),
                                 .next_save = run_.next_save()});
}

MeasureMeans RunLog::window_measures() const {
  const RunState& state = run_.state;
  const Task& task = *run_.parts.task;
  const std::vector<std::string> names = task.measures();
  MeasureMeans means;
  for (size_t i = 0; i < names.size(); ++i) {
    const bool is_measured = i < state.window_measured.size() && state.window_measured[i] > 0;
    means.emplace_back(names[i], is_measured ? state.window_measures[i] /
                                                   static_cast<double>(state.window_measured[i])
                                             : std::nan(""));
  }
  add_differences(task.measure_differences(), means);
  return means;
}

void RunLog::close_window() {
  RunState& state = run_.state;
  state.total_loss += state.window_loss;
  state.window_loss = 0.0;
  state.window_measures.clear();
  state.window_measured.clear();
  state.window_first_step = state.step;
}

std::optional<Json> logged_metrics(const TrainerState& state, int64_t step) {
  const auto& history = state.log_history;
  for (auto entry = history.rbegin(); entry != history.rend(); ++entry) {
    const auto logged = entry->find("step");
    if (logged == entry->end() || *logged != step || !entry->contains("eval_runtime")) continue;
    Json metrics = *entry;
    metrics.erase("step");
    metrics.erase("epoch");
    return metrics;
  }
  return std::nullopt;
}

}  // namespace finetune
