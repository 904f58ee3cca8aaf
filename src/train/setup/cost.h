// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "finetune/config/price_list.h"
#include "train/setup/session_clock.h"

namespace finetune {

// Cost in units and money. Costs of sessions on different machines can be added, hours cannot.
struct Cost {
  double units = 0.0;
  std::map<std::string, double> money = {};  // by currency

  Cost& operator+=(const Cost& other);
  // "3.21 units (37.02 JPY)"
  [[nodiscard]] std::string text() const;
  [[nodiscard]] nlohmann::ordered_json to_json() const;
  // Returns no cost for an empty object. `where` starts every message. Throws Error(kData).
  [[nodiscard]] static Cost from_json(const nlohmann::ordered_json& json, const std::string& where);
};

[[nodiscard]] Cost cost_of(const Hardware& hardware, double seconds);

// The cost of a run so far: of earlier sessions, as stored in the checkpoint, and of this session
// since its process started.
class CostMeter {
 public:
  CostMeter(Hardware hardware, double process_start, Cost before = {});

  // `now`: interrupt::seconds_since_boot().
  [[nodiscard]] Cost spent(double now) const;
  [[nodiscard]] Cost expected(double seconds) const { return cost_of(hardware_, seconds); }
  // "3.21 units (37.02 JPY) spent, 12.40 units (143 JPY) to go". `seconds_left`: nullopt if
  // unknown.
  [[nodiscard]] std::string text(double now, std::optional<double> seconds_left) const;
  // Returns the moment at which all sessions together have used that number of units.
  [[nodiscard]] SessionLimit limit(double unit_budget) const;
  [[nodiscard]] const Hardware& hardware() const { return hardware_; }

 private:
  Hardware hardware_;
  double process_start_;
  Cost before_;
};

}  // namespace finetune
