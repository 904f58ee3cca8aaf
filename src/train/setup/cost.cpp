// SPDX-License-Identifier: MIT
#include "train/setup/cost.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "finetune/base/json_fields.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

std::string amount(double value) {
  char text[64];
  std::snprintf(text, sizeof(text), value < 99.995 ? "%.2f" : "%.0f", value);
  return text;
}

std::string budget_text(double units) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", units);
  return text;
}

}  // namespace

Cost& Cost::operator+=(const Cost& other) {
  units += other.units;
  for (const auto& [currency, value] : other.money) money[currency] += value;
  return *this;
}

std::string Cost::text() const {
  std::string text = amount(units) + " units";
  std::string sums;
  for (const auto& [currency, value] : money) {
    sums += (sums.empty() ? "" : " + ") + amount(value) + (currency.empty() ? "" : " " + currency);
  }
  return sums.empty() ? text : text + " (" + sums + ")";
}

Json Cost::to_json() const {
  Json sums = Json::object();
  for (const auto& [currency, value] : money) sums[currency] = value;
  return {{"units", units}, {"money", sums}};
}

Cost Cost::from_json(const Json& json, const std::string& where) {
  Cost cost;
  if (json.empty()) return cost;
  constexpr NumberRange kAmount = {.low = 0};
  const JsonFields fields(json, where + ": cost");
  const JsonFields money = fields.fields("money");
  cost.units = fields.number("units", kAmount);
  for (const auto& item : fields.object("money").items()) {
    cost.money[item.key()] = money.number(item.key().c_str(), kAmount);
  }
  return cost;
}

Cost cost_of(const Hardware& hardware, double seconds) {
  Cost cost{.units = hardware.units_per_hour * seconds / 3600.0};
  if (hardware.price_per_unit > 0) {
    cost.money[hardware.currency] = cost.units * hardware.price_per_unit;
  }
  return cost;
}

CostMeter::CostMeter(Hardware hardware, double process_start, Cost before)
    : hardware_(std::move(hardware)), process_start_(process_start), before_(std::move(before)) {}

Cost CostMeter::spent(double now) const {
  Cost cost = before_;
  cost += cost_of(hardware_, now - process_start_);
  return cost;
}

std::string CostMeter::text(double now, std::optional<double> seconds_left) const {
  std::string text = spent(now).text() + " spent";
  if (seconds_left) text += ", " + expected(*seconds_left).text() + " to go";
  return text;
}

SessionLimit CostMeter::limit(double unit_budget) const {
  const double seconds = (unit_budget - before_.units) / hardware_.units_per_hour * 3600.0;
  return {.moment = process_start_ + seconds,
          .seconds = std::max(0.0, seconds),
          .reason = "unit_budget (" + budget_text(unit_budget) + " units)",
          .advice = "raise unit_budget to continue"};
}

}  // namespace finetune
