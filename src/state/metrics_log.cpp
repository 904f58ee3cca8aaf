// SPDX-License-Identifier: MIT
#include "finetune/state/metrics_log.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/json_fields.h"
#include "finetune/base/log.h"
#include "finetune/base/model_files.h"
#include "finetune/checkpoint/finished_model.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// transformers writes with sort_keys; the map of nlohmann::json sorts on every level.
Json sorted(const Json& value) { return Json(nlohmann::json(value)); }

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// transformers 4 wrote some of the counts as 500.0.
constexpr IntegerRange kCount = {.low = 0, .allow_float = true};

// Returns a member that is an object; an empty object if it is missing.
JsonFields member(const JsonFields& fields, const char* name) {
  static const Json empty = Json::object();
  return fields.find(name) == nullptr ? JsonFields(empty, "") : fields.fields(name);
}

Json control_json(const TrainerControlState& control) {
  return {{"args",
           {{"should_epoch_stop", control.should_epoch_stop},
            {"should_evaluate", control.should_evaluate},
            {"should_log", control.should_log},
            {"should_save", control.should_save},
            {"should_training_stop", control.should_training_stop}}},
          {"attributes", Json::object()}};
}

Json early_stopping_json(const EarlyStoppingState& state) {
  return {{"args",
           {{"early_stopping_patience", state.patience},
            {"early_stopping_threshold", state.threshold}}},
          {"attributes", {{"early_stopping_patience_counter", state.patience_counter}}}};
}

void read_callbacks(const JsonFields& callbacks, TrainerState& state) {
  const JsonFields control = member(member(callbacks, "TrainerControl"), "args");
  control.read("should_epoch_stop", state.control.should_epoch_stop);
  control.read("should_evaluate", state.control.should_evaluate);
  control.read("should_log", state.control.should_log);
  control.read("should_save", state.control.should_save);
  control.read("should_training_stop", state.control.should_training_stop);
  // transformers stores several callbacks of one class as a list. This program has one, so it
  // cannot take its state from the list and starts with a new one.
  const Json* stored = callbacks.find("EarlyStoppingCallback");
  if (stored == nullptr || stored->is_array()) return;
  const JsonFields callback = callbacks.fields("EarlyStoppingCallback");
  EarlyStoppingState& early = state.early_stopping.emplace();
  const JsonFields args = member(callback, "args");
  args.read("early_stopping_patience", early.patience, kCount);
  args.read("early_stopping_threshold", early.threshold);
  member(callback, "attributes")
      .read("early_stopping_patience_counter", early.patience_counter, kCount);
}

void read_log_history(const JsonFields& fields, TrainerState& state) {
  if (fields.find("log_history") == nullptr) return;
  for (const Json& record : fields.list("log_history")) {
    const auto is_number = [&](const char* key) {
      const auto found = record.find(key);
      return found == record.end() || found->is_null() || found->is_number();
    };
    if (!record.is_object() || !is_number("step") || !is_number("epoch")) {
      fields.refuse("log_history", "a list of logged steps");
    }
    state.log_history.push_back(record);
  }
}

// Rounds like Python: to the decimal that is nearest to the exact value.
double rounded(double value, int digits) {
  if (!std::isfinite(value)) return value;
  char text[400];
  const int size = std::snprintf(text, sizeof(text), "%.*f", digits, value);
  double result = value;
  std::from_chars(text, text + size, result);
  return result;
}

Json read_results(FileSystem& files, const std::string& path) {
  if (!files.exists(path)) return Json::object();
  try {
    Json stored = parse_json(files.read_all(path, uint64_t{16} << 20), path, ErrorKind::kData,
                             {.allow_nan = true});
    if (stored.is_object()) return stored;
    log::warning(path + ": is not a JSON object; it is rewritten");
  } catch (const Error& error) {
    log::warning(std::string(error.what()) + "; it is rewritten");
  }
  return Json::object();
}

}  // namespace

TrainerState::TrainerState() = default;
TrainerState::~TrainerState() = default;
TrainerState::TrainerState(const TrainerState&) = default;
TrainerState::TrainerState(TrainerState&&) noexcept = default;
TrainerState& TrainerState::operator=(const TrainerState&) = default;
TrainerState& TrainerState::operator=(TrainerState&&) noexcept = default;

const Json& TrainerState::log(Json values) {
  FT_CHECK(values.is_object() && !values.contains("step"), "a log record is an object of values");
  values["epoch"] = epoch;
  values["step"] = global_step;
  return log_history.emplace_back(std::move(values));
}

Json TrainerState::to_json() const {
  Json callbacks = Json::object();
  if (early_stopping) callbacks["EarlyStoppingCallback"] = early_stopping_json(*early_stopping);
  callbacks["TrainerControl"] = control_json(control);
  Json history = Json::array();
  for (const Json& record : log_history) history.push_back(record);
  return sorted({{"best_global_step", or_null(best_global_step)},
                 {"best_metric", or_null(best_metric)},
                 {"best_model_checkpoint", or_null(best_model_checkpoint)},
                 {"epoch", epoch},
                 {"eval_steps", eval_steps},
                 {"global_step", global_step},
                 {"is_hyper_param_search", false},
                 {"is_local_process_zero", is_local_process_zero},
                 {"is_world_process_zero", is_world_process_zero},
                 {"log_history", std::move(history)},
                 {"logging_steps", logging_steps},
                 {"max_steps", max_steps},
                 {"num_input_tokens_seen", num_input_tokens_seen},
                 {"num_train_epochs", num_train_epochs},
                 {"save_steps", save_steps},
                 {"stateful_callbacks", std::move(callbacks)},
                 {"total_flos", total_flos},
                 {"train_batch_size", or_null(train_batch_size)},
                 {"trial_name", nullptr},
                 {"trial_params", nullptr}});
}

std::string TrainerState::to_text() const { return to_json().dump(2, ' ', true) + "\n"; }

TrainerState TrainerState::from_json(const Json& json, const std::string& where) {
  const JsonFields fields(json, where);
  TrainerState state;
  fields.read("best_global_step", state.best_global_step, kCount);
  fields.read("best_metric", state.best_metric);
  fields.read("best_model_checkpoint", state.best_model_checkpoint);
  fields.read("epoch", state.epoch, {.low = 0});
  fields.read("eval_steps", state.eval_steps, kCount);
  fields.read("global_step", state.global_step, kCount);
  fields.read("is_local_process_zero", state.is_local_process_zero);
  fields.read("is_world_process_zero", state.is_world_process_zero);
  fields.read("logging_steps", state.logging_steps, kCount);
  fields.read("max_steps", state.max_steps, kCount);
  fields.read("num_input_tokens_seen", state.num_input_tokens_seen, kCount);
  fields.read("num_train_epochs", state.num_train_epochs, kCount);
  fields.read("save_steps", state.save_steps, kCount);
  fields.read("total_flos", state.total_flos);
  fields.read("train_batch_size", state.train_batch_size, kCount);
  read_log_history(fields, state);
  read_callbacks(member(fields, "stateful_callbacks"), state);
  return state;
}

TrainerState TrainerState::from_text(std::string_view text, const std::string& where) {
  return from_json(parse_json(text, where, ErrorKind::kData, {.allow_nan = true}), where);
}

Json speed_metrics(std::string_view split, double runtime_seconds, const SpeedCounts& counts) {
  const std::string prefix = std::string(split) + "_";
  Json result = {{prefix + "runtime", rounded(runtime_seconds, 4)}};
  if (runtime_seconds == 0) return result;
  const auto add = [&](const char* name, const std::optional<int64_t>& count) {
    if (!count) return;
    result[prefix + name] = rounded(static_cast<double>(*count) / runtime_seconds, 3);
  };
  add("samples_per_second", counts.samples);
  add("steps_per_second", counts.steps);
  add("tokens_per_second", counts.tokens);
  return result;
}

namespace {

// Whether a file is JSON as results are: an object, with a key of some split or none at all.
bool holds_results(FileSystem& files, const std::string& path) {
  try {
    const Json json = parse_json(files.read_all(path, uint64_t{16} << 20), path, ErrorKind::kData,
                                 {.allow_nan = true});
    if (!json.is_object()) return false;
    for (const auto& [key, value] : json.items()) {
      for (const char* split : {"train_", "eval_", "predict_", "test_"}) {
        if (key.starts_with(split)) return true;
      }
    }
    return json.empty();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kIo) throw;
    return false;
  }
}

void keep_other_file(FileSystem& files, const std::string& path) {
  if (files.type(path) != FileType::kFile || holds_results(files, path)) return;
  const std::string kept = checkpoint::quarantine_file(files, path);
  log::warning("'" + path + "' holds no results and is renamed to " + kept);
}

}  // namespace

void write_results(FileSystem& files, const std::string& output_dir, std::string_view name,
                   const Json& metrics) {
  const std::string own = join_path(output_dir, std::string(name) + kResultsEnd);
  keep_other_file(files, own);
  keep_other_file(files, join_path(output_dir, kAllResultsFile));
  files.write_atomically(own, sorted(metrics).dump(4, ' ', true));
  const std::string all = join_path(output_dir, kAllResultsFile);
  Json merged = read_results(files, all);
  merged.update(metrics);
  files.write_atomically(all, sorted(merged).dump(4, ' ', true));
}

}  // namespace finetune
