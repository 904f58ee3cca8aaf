// SPDX-License-Identifier: MIT
#include "finetune/config/price_list.h"

#include <nlohmann/json.hpp>

#include "config/keys/words.h"
#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/json_fields.h"
#include "finetune/base/nearest.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kYenPerUnit = 5767.0 / 500.0;

Hardware colab(const char* name, double units_per_hour) {
  return {.name = name,
          .units_per_hour = units_per_hour,
          .price_per_unit = kYenPerUnit,
          .currency = "JPY"};
}

// A chip of Cloud TPU in a region of the United States, paid by the hour. Peak in bfloat16 by Cloud
// TPU's documentation; a product in float32 takes six of bfloat16.
PricedMachine cloud_tpu(const char* name, const char* chip, double memory_gib, double half_flops,
                        double dollars) {
  return {.hardware = {.name = name,
                       .units_per_hour = dollars,
                       .price_per_unit = 1.0,
                       .currency = "USD"},
          .description = std::string("Google Cloud, ") + chip + ", one chip, on demand",
          .chip = chip,
          .note = "a unit is a dollar; spot machines cost less",
          .is_device = true,
          .memory_gib = memory_gib,
          .tera_flops = half_flops / 6,
          .half_flops = half_flops,
          .has_bfloat16 = true};
}

// Peak figures: NVIDIA's data sheets for T4, V100 SXM2 and A100; CPUs: cores x 2.2 GHz x 32.
std::vector<PricedMachine> make_list() {
  const PricedMachine processor{.description = "Colab, 2 processors",
                                .memory_gib = 12.7,
                                .tera_flops = 0.07,
                                .half_flops = 0.07};
  const PricedMachine t4{.description = "Colab, NVIDIA T4",
                         .chip = "T4",
                         .is_device = true,
                         .memory_gib = 15,
                         .tera_flops = 8.1,
                         .half_flops = 65};
  const PricedMachine v100{.description = "Colab, NVIDIA V100",
                           .chip = "V100",
                           .is_device = true,
                           .memory_gib = 16,
                           .tera_flops = 15.7,
                           .half_flops = 125};
  const PricedMachine a100{.description = "Colab, NVIDIA A100",
                           .chip = "A100",
                           .note = "13.06 to 13.08 were reported; the dearer one counts",
                           .is_device = true,
                           .memory_gib = 40,
                           .tera_flops = 19.5,
                           .half_flops = 312,
                           .has_bfloat16 = true};
  const auto row = [](PricedMachine machine, Hardware hardware, const char* more = "") {
    machine.hardware = std::move(hardware);
    machine.description += more;
    return machine;
  };
  PricedMachine large = row(processor, colab("colab_cpu_high_memory", 0.12));
  large.description = "Colab, 8 processors, high memory";
  large.memory_gib = 51.0;
  large.tera_flops = large.half_flops = 0.28;
  return {row(processor, colab("colab_cpu", 0.08)),
          large,
          row(t4, colab("colab_t4", 1.96)),
          row(t4, colab("colab_t4_high_memory", 2.05), ", high memory"),
          row(v100, colab("colab_v100", 5.36)),
          row(v100, colab("colab_v100_high_memory", 5.45), ", high memory"),
          row(a100, colab("colab_a100", 13.08)),
          cloud_tpu("cloud_tpu_v5e", "TPU v5e", 16, 197, 1.20),
          cloud_tpu("cloud_tpu_v6e", "TPU v6e", 32, 918, 2.70)};
}

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorKind::kConfig, "'hardware' " + message);
}

Hardware from_mapping(const Json& json) {
  static const std::vector<std::string> kKnown = {"units_per_hour", "price_per_unit", "currency"};
  for (const auto& [key, value] : json.items()) {
    if (contains(kKnown, key)) continue;
    refuse("has no '" + key + "'" + did_you_mean(key, kKnown) + "; it may hold " + join(kKnown));
  }
  const JsonFields fields(json, "hardware", ErrorKind::kConfig);
  if (fields.find("units_per_hour") == nullptr) {
    refuse("needs units_per_hour: how many units an hour of this machine takes");
  }
  Hardware hardware{
      .name = kOwnHardware,
      .units_per_hour = fields.number("units_per_hour", {.low = 0, .above_low = true})};
  fields.read("price_per_unit", hardware.price_per_unit, {.low = 0});
  fields.read("currency", hardware.currency);
  if (fields.find("currency") != nullptr && hardware.currency.empty()) {
    fields.refuse("currency", "a text such as EUR");
  }
  return hardware;
}

}  // namespace

const std::vector<PricedMachine>& price_list() {
  static const std::vector<PricedMachine> list = make_list();
  return list;
}

std::optional<Hardware> hardware_of(const TrainingArgs& args) {
  if (args.hardware.empty()) return std::nullopt;
  const Json json = parse_json(args.hardware.text, "hardware", ErrorKind::kConfig);
  if (json.is_object()) return from_mapping(json);
  const std::string name = json.is_string() ? json.get<std::string>() : json.dump();
  std::vector<std::string> known;
  for (const PricedMachine& machine : price_list()) {
    if (machine.hardware.name == name) return machine.hardware;
    known.push_back(machine.hardware.name);
  }
  refuse("names no row of the price list: '" + name + "'" + did_you_mean(name, known) +
         "; it has " + join(known) +
         ", or give {units_per_hour, price_per_unit, currency} yourself");
}

}  // namespace finetune
