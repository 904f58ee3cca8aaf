// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "finetune/config/training_args.h"

namespace finetune {

// The price of a machine.
struct Hardware {
  std::string name = {};  // in the price list, or kOwnHardware
  double units_per_hour = 0.0;
  double price_per_unit = 0.0;  // 0: unknown
  std::string currency = {};
};

// A row of the built-in price list: prices as reported by users, and the manufacturers' peak
// figures, which compare machines only roughly.
struct PricedMachine {
  Hardware hardware = {};
  std::string description = {};
  std::string chip = {};      // part of the driver's device name; empty for CPUs
  std::string note = {};      // about the price; may be empty
  bool is_device = false;     // trains on an accelerator
  double memory_gib = 0.0;    // of the accelerator, or without one of the machine
  double tera_flops = 0.0;    // peak in float32
  double half_flops = 0.0;    // peak in float16
  bool has_bfloat16 = false;  // at the float16 figure
};

// The name of a machine whose prices come from the configuration.
inline constexpr const char* kOwnHardware = "given";
inline constexpr const char* kPriceListDate = "2026-11";
inline constexpr const char* kPriceListSource =
    "Google Colab's compute units as users reported them (500 units for 5,767 yen), Google Cloud's "
    "list of 2025 for TPUs, in dollars; prices change: compare them with "
    "colab.research.google.com/signup and cloud.google.com/tpu/pricing, and give your own by "
    "hardware: {units_per_hour, price_per_unit, currency}";

[[nodiscard]] const std::vector<PricedMachine>& price_list();

// Returns the value of the key `hardware`; nullopt if it is unset. Throws Error(kConfig) with the
// reason, to which load_config adds file and line.
[[nodiscard]] std::optional<Hardware> hardware_of(const TrainingArgs& args);

}  // namespace finetune
