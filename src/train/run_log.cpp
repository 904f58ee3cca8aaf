// SPDX-License-Identifier: MIT
#include "train/run_log.h"

#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/log.h"
#include "finetune/task/tasks.h"

namespace finetune {

using Json = nlohmann::ordered_json;

void RunLog::open() {
  events_.reset();
  const TrainingArgs& args = run_.args;
  if (!args.reports_to("tensorboard") || !run_.world().is_first()) return;
  const std::string runs = args.logging_dir.value_or(join_path(args.output_dir, "runs"));
  const int64_t step = run_.state.step;
  try {
    const std::string folder = tensorboard_folder(run_.files, runs);
    run_.files.make_directories(folder);
    events_ = std::make_unique<EventWriter>(run_.files, folder, step > 0 ? step + 1 : -1);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kIo || step == 0) throw;  // nothing is lost yet
    log::warning("this session is not written for TensorBoard, training goes on: " +
                 std::string(error.what()));
  }
}

void RunLog::log(Json values) {
  TrainerState& record = run_.trainer_state;
  record.epoch = run_.epoch();
  record.global_step = run_.state.step;
  if (run_.args.include_num_input_tokens_seen != "no") {
    values["num_input_tokens_seen"] = run_.state.tokens_seen;
  }
  if (task_of(run_.args).logs_tokens) values["num_tokens"] = run_.state.tokens_seen;
  const Json entry = record.log(std::move(values));
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
  const double loss = state.window_loss / static_cast<double>(state.step - state.window_first_step);
  Json values;
  values["loss"] = loss;
  values["grad_norm"] = state.last_grad_norm;
  values["learning_rate"] = state.last_learning_rate;
  close_window();
  log(std::move(values));
  run_.progress.log(state.step, {.loss = loss,
                                 .learning_rate = state.last_learning_rate,
                                 .tokens_per_second = {},
                                 .memory_mib = {},
                                 .cost = {}});
}

void RunLog::close_window() {
  RunState& state = run_.state;
  state.total_loss += state.window_loss;
  state.window_loss = 0.0;
  state.window_first_step = state.step;
}

std::optional<Json> logged_metrics(const TrainerState& state, int64_t step) {
  const auto& history = state.log_history;
  for (auto entry = history.rbegin(); entry != history.rend(); ++entry) {
    const auto logged = entry->find("step");
    if (logged == entry->end() || *logged != step || !entry->contains("eval_loss")) continue;
    Json metrics = *entry;
    metrics.erase("step");
    metrics.erase("epoch");
    return metrics;
  }
  return std::nullopt;
}

}  // namespace finetune
