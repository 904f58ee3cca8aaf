// SPDX-License-Identifier: MIT
#include "finetune/state/foreign_schedule.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "finetune/base/error.h"
#include "finetune/base/json.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// Both names and meanings are the same here and there.
constexpr std::array<const char*, 6> kCounters = {"num_bad_epochs", "cooldown_counter",
                                                  "last_epoch",     "num_good_epochs",
                                                  "warmup_counter", "reset_start"};
constexpr std::array<const char*, 2> kRates = {"_last_lr", "_init_lrs"};
constexpr char kAverage[] = "_streaming_avg";

double number(const TorchValue& value) {
  if (value.is_tensor() && value.as_tensor().numel() == 1 &&
      value.as_tensor().is_floating_point()) {
    return value.as_tensor().item<double>();
  }
  return value.as_double();
}

// As Schedule::state() writes what JSON has no word for.
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

Json state_from_torch(const TorchValue& scheduler, bool greedy) {
  Json state;
  state["type"] = greedy ? "greedy" : "reduce_lr_on_plateau";
  state["best"] = exact(number(scheduler.at("best")));
  for (const char* name : kCounters) {
    if (const TorchValue* value = scheduler.find(name)) state[name] = value->as_int();
  }
  for (const char* name : kRates) {
    if (const TorchValue* value = scheduler.find(name)) state[name] = numbers(*value);
  }
  if (const TorchValue* average = scheduler.find(kAverage)) {
    state[kAverage] = average_from_torch(*average);
  }
  return state;
}

}  // namespace

std::optional<Json> metric_schedule_from_torch(const TorchValue& scheduler,
                                               const std::string& where) {
  try {
    if (scheduler.find("num_bad_epochs") == nullptr) return std::nullopt;
    return state_from_torch(scheduler, scheduler.find("num_good_epochs") != nullptr);
  } catch (const Error& error) {
    throw Error(ErrorKind::kCheckpoint,
                "'" + where + "' is no state of a learning rate schedule: " + error.what());
  }
}

TorchValue metric_schedule_to_torch(const Json& state, int groups) {
  TorchDict dict;
  dict.set("best", from_exact(state.at("best")));
  for (const char* name : kCounters) {
    if (state.contains(name)) dict.set(name, state[name].get<int64_t>());
  }
  const bool greedy = state.contains("num_good_epochs");
  for (const char* name : kRates) {
    // ReduceLROnPlateau knows no rate to go back to.
    if (!state.contains(name) || (!greedy && name != kRates.front())) continue;
    const double rate = state[name].front().get<double>();
    dict.set(name, TorchList(static_cast<size_t>(groups), rate));
  }
  if (state.contains(kAverage)) {
    TorchDict average;
    average.set("window_size", state[kAverage].at("window_size").get<int64_t>());
    TorchList values;
    for (const Json& value : state[kAverage].at("values")) values.emplace_back(from_exact(value));
    average.set("values", std::move(values));
    average.set("sum", from_exact(state[kAverage].at("sum")));
    dict.set(kAverage, std::move(average));
  }
  return dict;
}

}  // namespace finetune
