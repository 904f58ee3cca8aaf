// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "finetune/config/price_list.h"
#include "train/session_clock.h"

namespace finetune {

// Units and money. Sessions on different machines add up in what they took, not in hours.
struct Cost {
  double units = 0.0;
  std::map<std::string, double> money = {};  // by currency

  Cost& operator+=(const Cost& other);
  // "3.21 units (37.02 JPY)"
  [[nodiscard]] std::string text() const;
  [[nodiscard]] nlohmann::ordered_json to_json() const;
  // Nothing for an empty object. `where` starts every message. Throws Error(kData).
  [[nodiscard]] static Cost from_json(const nlohmann::ordered_json& json, const std::string& where);
};

[[nodiscard]] Cost cost_of(const Hardware& hardware, double seconds);

// What a run has cost so far: earlier sessions, as a checkpoint keeps them, and this one since its
// process started.
class CostMeter {
 public:
  CostMeter(Hardware hardware, double process_start, Cost before = {});

  // `now`: interrupt::seconds_since_boot().
  [[nodiscard]] Cost spent(double now) const;
  [[nodiscard]] Cost expected(double seconds) const { return cost_of(hardware_, seconds); }
  // "3.21 units (37.02 JPY) spent, 12.40 units (143 JPY) to go"; `seconds_left` where it is known.
  [[nodiscard]] std::string text(double now, std::optional<double> seconds_left) const;
  // The moment at which all sessions together have used that number of units.
  [[nodiscard]] SessionLimit limit(double unit_budget) const;
  [[nodiscard]] const Hardware& hardware() const { return hardware_; }

 private:
  Hardware hardware_;
  double process_start_;
  Cost before_;
};

}  // namespace finetune
