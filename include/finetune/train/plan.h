// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "finetune/config/load.h"

namespace finetune {

struct PlanOptions {
  // Find the largest batch for this many bytes; unset: for available memory.
  std::optional<int64_t> memory;
};

// Implements `finetune plan`: the resources a training needs, before any weight is allocated. Reads
// tokenizer, model configuration and data like the training. Throws Error(kConfig | kData).
//
// Keys: "parts" (bytes by part), "peak", "host" (peak of the host when training on a device),
// "available", "fits", "largest_batch" (samples per device), "largest_batch_for" (bytes),
// "effective_batch", "micro_batch", "accumulation", "samples" (per epoch; with packing rows),
// "steps", "device", "flops" (per update), "peak_elsewhere" (on a device if planned for the CPU,
// and vice versa), and with memory_budget "decision" and "decision_line".
[[nodiscard]] nlohmann::ordered_json plan_training(const LoadedConfig& config,
                                                   const PlanOptions& options);

// Adds "costs": time and price of the complete run on every row of the price list, cheapest first,
// and on the machine that `hardware` describes. If the plan has "hours" measured on this machine,
// its row uses them and the others are scaled by peak figures; otherwise all are estimated from
// peak figures. Each row states this ("basis"), and whether the run fits into its memory.
void add_costs(const TrainingArgs& args, nlohmann::ordered_json& plan);

// Returns the plan as a table, including "measured_peak", "step_seconds" and "hours" if they were
// added.
[[nodiscard]] std::string plan_text(const nlohmann::ordered_json& plan);

}  // namespace finetune
