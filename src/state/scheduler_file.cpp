// SPDX-License-Identifier: MIT
#include "finetune/state/scheduler_file.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/optim/schedule.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

using Form = ScheduleMember::Form;

double number(const TorchValue& value) {
  if (value.is_tensor() && value.as_tensor().numel() == 1 &&
      value.as_tensor().is_floating_point()) {
    return value.as_tensor().item<double>();
  }
  return value.as_double();
}

// Writes non-finite values as text, like Schedule::state().
Json exact(double value) { return std::isfinite(value) ? Json(value) : Json(format_double(value)); }

double from_exact(const Json& value) {
  if (value.is_number()) return value.get<double>();
  return value == "nan" ? NAN : value == "-inf" ? -HUGE_VAL : HUGE_VAL;
}

Json numbers(const TorchValue& list) {
  Json result = Json::array();
  for (const TorchValue& item : list.as_sequence()) result.push_back(exact(number(item)));
  return result;
}

Json average_from_torch(const TorchValue& average) {
  return {{"window_size", average.at("window_size").as_int()},
          {"values", numbers(average.at("values"))},
          {"sum", exact(number(average.at("sum")))}};
}

const ScheduleKind* schedule_of_file(const TorchValue& scheduler) {
  const ScheduleKind* found = nullptr;
  for (const ScheduleKind& kind : schedules()) {
    if (kind.recognised_by && scheduler.find(kind.recognised_by) != nullptr) found = &kind;
  }
  return found;
}

Json member_from_torch(Form form, const TorchValue& value) {
  switch (form) {
    case Form::kNumber:
      return exact(number(value));
    case Form::kCount:
      return value.as_int();
    case Form::kRates:
      return numbers(value);
    case Form::kAverage:
      return average_from_torch(value);
  }
  FT_CHECK(false, "a form of a schedule's state");
}

Json state_from_torch(const TorchValue& scheduler, const ScheduleKind& kind) {
  Json state;
  state["type"] = kind.type;
  for (const auto& [name, form] : kind.members) {
    const TorchValue* value = form == Form::kNumber ? &scheduler.at(name) : scheduler.find(name);
    if (value != nullptr) state[name] = member_from_torch(form, *value);
  }
  return state;
}

TorchValue average_to_torch(const Json& average) {
  TorchDict dict;
  dict.set("window_size", average.at("window_size").get<int64_t>());
  TorchList values;
  for (const Json& value : average.at("values")) values.emplace_back(from_exact(value));
  dict.set("values", std::move(values));
  dict.set("sum", from_exact(average.at("sum")));
  return dict;
}

TorchList for_each_group(const std::vector<double>& factors, double learning_rate) {
  TorchList rates;
  for (const double factor : factors) rates.emplace_back(learning_rate * factor);
  return rates;
}

TorchValue member_to_torch(Form form, const Json& value, const std::vector<double>& factors) {
  switch (form) {
    case Form::kNumber:
      return from_exact(value);
    case Form::kCount:
      return value.get<int64_t>();
    case Form::kRates:
      return for_each_group(factors, value.front().get<double>());
    case Form::kAverage:
      return average_to_torch(value);
  }
  FT_CHECK(false, "a form of a schedule's state");
}

}  // namespace

TorchValue scheduler_to_torch(int64_t updates, double initial_learning_rate, double learning_rate,
                              const std::vector<double>& factors) {
  TorchDict root;
  root.set("base_lrs", for_each_group(factors, initial_learning_rate));
  root.set("last_epoch", updates);
  root.set("_step_count", updates + 1);
  root.set("_is_initial", false);
  root.set("_get_lr_called_within_step", false);
  root.set("_last_lr", for_each_group(factors, learning_rate));
  root.set("lr_lambdas", TorchList(factors.size(), TorchDict{}));
  return root;
}

std::optional<Json> metric_schedule_from_torch(const TorchValue& scheduler,
                                               const std::string& where) {
  try {
    const ScheduleKind* kind = schedule_of_file(scheduler);
    if (kind == nullptr) return std::nullopt;
    return state_from_torch(scheduler, *kind);
  } catch (const Error& error) {
    throw Error(ErrorKind::kCheckpoint,
                "'" + where + "' is no state of a learning rate schedule: " + error.what());
  }
}

TorchValue metric_schedule_to_torch(const Json& state, const std::vector<double>& factors) {
  const ScheduleKind* kind = find_schedule(state.at("type").get<std::string>());
  FT_CHECK(kind != nullptr, "a schedule's own state");
  TorchDict dict;
  for (const auto& [name, form] : kind->members) {
    if (state.contains(name)) dict.set(name, member_to_torch(form, state[name], factors));
  }
  return dict;
}

}  // namespace finetune
