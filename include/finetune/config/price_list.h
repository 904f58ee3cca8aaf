// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "finetune/config/training_args.h"

namespace finetune {

// What a machine costs.
struct Hardware {
  std::string name = {};  // of the price list, or kOwnHardware
  double units_per_hour = 0.0;
  double price_per_unit = 0.0;  // 0: not known
  std::string currency = {};
};

// A row of the shipped price list: prices as users reported them, and the makers' peak figures,
// which say only roughly how fast rows are beside each other.
struct PricedMachine {
  Hardware hardware = {};
  std::string description = {};
  std::string chip = {};      // a part of its name as the driver says it; processors: empty
  std::string note = {};      // about the price; may be empty
  bool is_device = false;     // trains on an accelerator
  double memory_gib = 0.0;    // of the accelerator, else of the machine
  double tera_flops = 0.0;    // peak in float32
  double half_flops = 0.0;    // peak in float16
  bool has_bfloat16 = false;  // at the float16 figure
};

// The name of a machine whose figures the configuration gives.
inline constexpr const char* kOwnHardware = "given";
inline constexpr const char* kPriceListDate = "2026-11";
inline constexpr const char* kPriceListSource =
    "Google Colab's compute units as users reported them (500 units for 5,767 yen); prices change: "
    "compare them with colab.research.google.com/signup and give your own by hardware: "
    "{units_per_hour, price_per_unit, currency}";

[[nodiscard]] const std::vector<PricedMachine>& price_list();

// What the key `hardware` says; nothing where it is unset. Throws Error(kConfig) with the reason,
// which load_config shows with the key's place.
[[nodiscard]] std::optional<Hardware> hardware_of(const TrainingArgs& args);

}  // namespace finetune
