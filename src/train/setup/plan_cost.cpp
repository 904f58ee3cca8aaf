// SPDX-License-Identifier: MIT
#include "train/setup/plan_cost.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "finetune/config/price_list.h"
#include "finetune/model/model.h"
#include "finetune/report/duration_text.h"
#include "finetune/train/plan.h"
#include "train/setup/cost.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// Fraction of the peak speed that training reaches, if nothing was measured.
constexpr double kReachedShare = 0.35;

double peak_flops(const PricedMachine& machine, const TrainingArgs& args) {
  const bool is_half = args.fp16 || (args.bf16 && machine.has_bfloat16);
  return 1e12 * (is_half ? machine.half_flops : machine.tera_flops);
}

// Returns the price-list row of this machine: for a GPU by the driver's name of it, for a CPU by
// the user's choice.
const PricedMachine* this_machine(const TrainingArgs& args, const Json& plan) {
  const std::optional<Hardware> named = hardware_of(args);
  const bool on_device = plan.at("is_device").get<bool>();
  const auto device = plan.at("device").get<std::string>();
  const PricedMachine* found = nullptr;
  for (const PricedMachine& machine : price_list()) {
    const bool is_named = named && named->name == machine.hardware.name;
    if (machine.is_device != on_device) continue;
    if (on_device ? device.find(machine.chip) == std::string::npos : !is_named) continue;
    if (found == nullptr || is_named) found = &machine;
  }
  return found;
}

Json cost_row(const Hardware& hardware, double hours, const char* basis) {
  const Cost cost = cost_of(hardware, hours * 3600.0);
  Json row = {{"name", hardware.name},
              {"hours", hours},
              {"units", cost.units},
              {"money", hardware.price_per_unit > 0 ? Json(cost.money.begin()->second) : Json()},
              {"currency", hardware.currency},
              {"basis", basis}};
  return row;
}

std::string printed(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

std::string left_column(const std::string& text, size_t width) {
  return text + std::string(text.size() < width ? width - text.size() : 1, ' ');
}

std::string right_column(const std::string& text, size_t width) {
  return std::string(text.size() < width ? width - text.size() : 1, ' ') + text;
}

// Prints small values as "under 0.01" instead of rounding them to nothing.
std::string few(double value, const char* format) {
  return value > 0 && value < 0.005 ? "under 0.01" : printed(format, value);
}

std::string units_text(const Json& row) {
  const double units = row.at("units").get<double>();
  return few(units, units < 99.995 ? "%.2f" : "%.0f");
}

std::string time_text(const Json& row) {
  return duration_text(3600 * row.at("hours").get<double>());
}

std::string money_text(const Json& row) {
  if (row.at("money").is_null()) return "-";
  const double money = row.at("money").get<double>();
  return few(money, money < 99.995 ? "%.2f" : "%.0f") + " " + row.at("currency").get<std::string>();
}

std::string row_text(const Json& row) {
  std::string text = "  " + left_column(row.at("name").get<std::string>(), 24) +
                     right_column(time_text(row), 11) + right_column(units_text(row), 11) +
                     right_column(money_text(row), 16) + "  " + row.at("basis").get<std::string>();
  if (!row.value("fits", true)) text += ", does not fit into its memory";
  return text + '\n';
}

}  // namespace

double flops_of_update(const MemoryWorkload& workload, const MemoryChoices& choices) {
  const ModelConfig& model = workload.model;
  const auto hidden = static_cast<double>(model.hidden_size);
  const auto length = static_cast<double>(workload.length);
  double layer = 4 * hidden * hidden + 2 * hidden * static_cast<double>(model.intermediate_size) +
                 2 * hidden * length;  // scores and their sums
  if (is_causal(model)) {              // grouped keys, a gated network, half of the scores
    const auto heads = static_cast<double>(model.num_attention_heads);
    const auto size = static_cast<double>(model.decoder.head_dim.value_or(0));
    const auto keys = static_cast<double>(model.decoder.num_key_value_heads.value_or(0));
    layer = 2 * hidden * (heads + keys) * size +
            3 * hidden * static_cast<double>(model.intermediate_size) + heads * size * length;
  }
  const double layers = layer * static_cast<double>(model.num_hidden_layers);
  const double head = workload.head
                          ? 0.0
                          : workload.predicted_share *
                                (hidden * hidden + hidden * static_cast<double>(model.vocab_size));
  const double tokens = length * static_cast<double>(workload.effective_batch * workload.choices);
  const ActivationCheckpointing& again = choices.checkpointing;
  const double passes = !again.enabled ? 3.0 : again.selective ? 3.2 : 4.0;
  return 2.0 * passes * tokens * layers + 6.0 * tokens * head;
}

void add_costs(const TrainingArgs& args, Json& plan) {
  const bool is_measured = plan.contains("hours");
  const double flops = plan.at("flops").get<double>() * plan.at("steps").get<double>();
  const PricedMachine* const here = is_measured ? this_machine(args, plan) : nullptr;
  std::vector<Json> rows;
  for (const PricedMachine& machine : price_list()) {
    const double peak = peak_flops(machine, args);
    double hours = flops / (kReachedShare * peak) / 3600.0;
    const char* basis = "estimated from peak figures";
    if (here != nullptr) {
      hours = plan["hours"].get<double>() * peak_flops(*here, args) / peak;
      basis = here == &machine ? "measured here" : "scaled by peak figures";
    }
    Json row = cost_row(machine.hardware, hours, basis);
    const char* needed = machine.is_device == plan.at("is_device") ? "peak" : "peak_elsewhere";
    row["fits"] = plan.at(needed).get<double>() <= machine.memory_gib * 0x1p30;
    rows.push_back(std::move(row));
  }
  // Units of different currencies do not compare: those of one stand together.
  std::ranges::stable_sort(rows, {}, [](const Json& row) {
    return std::tuple(!row["fits"].get<bool>(), row["currency"].get<std::string>(),
                      row["units"].get<double>());
  });
  const std::optional<Hardware> hardware = hardware_of(args);
  Json costs = {{"price_list", kPriceListDate},
                {"source", kPriceListSource},
                {"hardware", hardware ? Json(hardware->name) : Json()},
                {"rows", rows}};
  const bool is_given = hardware && hardware->name == kOwnHardware;
  if (is_measured && here == nullptr && !is_given) costs["here_hours"] = plan["hours"];
  if (is_given && is_measured) {
    costs["given"] = cost_row(*hardware, plan["hours"].get<double>(), "measured here");
  }
  plan["costs"] = std::move(costs);
}

std::string costs_text(const Json& plan) {
  const auto found = plan.find("costs");
  if (found == plan.end()) return "";
  const Json& rows = found->at("rows");
  const Json& cheapest = rows.front();
  const std::string name = cheapest.at("name").get<std::string>();
  const std::string list = "the price list of " + found->at("price_list").get<std::string>();
  const std::string here =
      found->contains("here_hours")
          ? "this machine: " + duration_text(3600 * found->at("here_hours").get<double>()) +
                ", measured here\n"
          : "";
  if (found->at("hardware").is_null() && !cheapest.at("fits").get<bool>()) {
    return here + "no machine of " + list + " has the memory; set hardware to see all rows\n";
  }
  if (found->at("hardware").is_null()) {
    return here + "cheapest by " + list + ": " + name + ", " + units_text(cheapest) + " units (" +
           money_text(cheapest) + ") in " + time_text(cheapest) + ", " +
           cheapest.at("basis").get<std::string>() + "; set hardware to see all rows\n";
  }
  std::string text = "\n" + here + "  " + left_column("the whole run on", 24) +
                     right_column("time", 11) + right_column("units", 11) +
                     right_column("money", 16) + '\n';
  if (found->contains("given")) {
    text += row_text(found->at("given"));
  } else if (*found->find("hardware") == kOwnHardware) {
    text += "  --measure shows the cost on this machine\n";
  }
  for (const Json& row : rows) text += row_text(row);
  return text + "cheapest by " + list + ": " + name + " (" +
         found->at("source").get<std::string>() + ")\n";
}

}  // namespace finetune
