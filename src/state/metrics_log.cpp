// SPDX-License-Identifier: MIT
#include "finetune/state/metrics_log.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// transformers writes with sort_keys; the map of nlohmann::json sorts on every level.
Json sorted(const Json& value) { return Json(nlohmann::json(value)); }

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// Members of an object in a file; every message starts with the file and the key.
class ObjectReader {
 public:
  ObjectReader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) throw Error(ErrorKind::kData, where_ + ": must be a JSON object");
  }

  [[nodiscard]] const Json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  void read(const char* key, double& value) const {
    const Json* stored = find(key);
    if (stored == nullptr) return;
    if (!stored->is_number()) reject(key, "a number", *stored);
    value = stored->get<double>();
  }
  // transformers 4 wrote some of the counts as 500.0.
  void read(const char* key, int64_t& value) const {
    const Json* stored = find(key);
    if (stored == nullptr) return;
    const double number = stored->is_number() ? stored->get<double>() : -1;
    if (!(number >= 0) || number > 0x1p53 || number != std::floor(number)) {
      reject(key, "a whole number of at least 0", *stored);
    }
    value = static_cast<int64_t>(number);
  }
  void read(const char* key, bool& value) const {
    const Json* stored = find(key);
    if (stored == nullptr) return;
    if (!stored->is_boolean()) reject(key, "true or false", *stored);
    value = stored->get<bool>();
  }
  void read(const char* key, std::string& value) const {
    const Json* stored = find(key);
    if (stored == nullptr) return;
    if (!stored->is_string()) reject(key, "text", *stored);
    value = stored->get<std::string>();
  }
  template <class T>
  void read(const char* key, std::optional<T>& value) const {
    value.reset();
    if (find(key) != nullptr) read(key, value.emplace());
  }
  // A member that is an object itself; one empty where it is missing.
  [[nodiscard]] ObjectReader member(const char* key) const {
    static const Json empty = Json::object();
    const Json* stored = find(key);
    return {stored == nullptr ? empty : *stored, where_ + ": " + key};
  }
  [[noreturn]] void reject(const char* key, const char* expected, const Json& found) const {
    throw Error(ErrorKind::kData, where_ + ": '" + key + "' must be " + expected + ", not " +
                                      found.dump().substr(0, 60));
  }

 private:
  const Json& object_;
  std::string where_;
};

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

void read_callbacks(const ObjectReader& callbacks, TrainerState& state) {
  const ObjectReader control = callbacks.member("TrainerControl").member("args");
  control.read("should_epoch_stop", state.control.should_epoch_stop);
  control.read("should_evaluate", state.control.should_evaluate);
  control.read("should_log", state.control.should_log);
  control.read("should_save", state.control.should_save);
  control.read("should_training_stop", state.control.should_training_stop);
  // Several callbacks of one kind are a list in transformers; here there is one, so that its
  // state cannot be told and is left at the start.
  const Json* stored = callbacks.find("EarlyStoppingCallback");
  if (stored == nullptr || stored->is_array()) return;
  const ObjectReader callback = callbacks.member("EarlyStoppingCallback");
  EarlyStoppingState& early = state.early_stopping.emplace();
  callback.member("args").read("early_stopping_patience", early.patience);
  callback.member("args").read("early_stopping_threshold", early.threshold);
  callback.member("attributes").read("early_stopping_patience_counter", early.patience_counter);
}

void read_log_history(const ObjectReader& reader, TrainerState& state) {
  const Json* history = reader.find("log_history");
  if (history == nullptr) return;
  if (!history->is_array()) reader.reject("log_history", "a list of logged steps", *history);
  for (const Json& record : *history) {
    if (!record.is_object()) reader.reject("log_history", "a list of logged steps", record);
    state.log_history.push_back(record);
  }
}

// Python's round: the decimal that is nearest to the exact value.
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
    log::warning(path + ": is not a JSON object; it is written anew");
  } catch (const Error& error) {
    log::warning(std::string(error.what()) + "; it is written anew");
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
  const ObjectReader reader(json, where);
  TrainerState state;
  reader.read("best_global_step", state.best_global_step);
  reader.read("best_metric", state.best_metric);
  reader.read("best_model_checkpoint", state.best_model_checkpoint);
  reader.read("epoch", state.epoch);
  reader.read("eval_steps", state.eval_steps);
  reader.read("global_step", state.global_step);
  reader.read("is_local_process_zero", state.is_local_process_zero);
  reader.read("is_world_process_zero", state.is_world_process_zero);
  reader.read("logging_steps", state.logging_steps);
  reader.read("max_steps", state.max_steps);
  reader.read("num_input_tokens_seen", state.num_input_tokens_seen);
  reader.read("num_train_epochs", state.num_train_epochs);
  reader.read("save_steps", state.save_steps);
  reader.read("total_flos", state.total_flos);
  reader.read("train_batch_size", state.train_batch_size);
  if (!(state.epoch >= 0)) reader.reject("epoch", "at least 0", state.epoch);
  read_log_history(reader, state);
  read_callbacks(reader.member("stateful_callbacks"), state);
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

void write_results(FileSystem& files, const std::string& output_dir, std::string_view name,
                   const Json& metrics) {
  const std::string own = join_path(output_dir, std::string(name) + "_results.json");
  files.write_atomically(own, sorted(metrics).dump(4, ' ', true));
  const std::string all = join_path(output_dir, "all_results.json");
  Json merged = read_results(files, all);
  merged.update(metrics);
  files.write_atomically(all, sorted(merged).dump(4, ' ', true));
}

}  // namespace finetune
