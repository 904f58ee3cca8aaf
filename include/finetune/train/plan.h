// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "finetune/config/load.h"

namespace finetune {

struct PlanOptions {
  std::optional<int64_t> memory;  // bytes to find the largest batch for; else what there is
};

// `finetune plan`: what a training would need, before any weight is allocated. Reads tokenizer,
// model configuration and data as the training does. Throws Error(kConfig | kData).
//
// Keys: "parts" (bytes by part), "peak", "host" (a device's runs: the host's peak), "available",
// "fits", "largest_batch" (samples a device), "largest_batch_for" (bytes), "effective_batch",
// "micro_batch", "accumulation", "samples" (of an epoch; with packing rows), "steps", "device",
// "flops" (of an update), "peak_elsewhere" (on a device where this is none, and the other way
// round), and with memory_budget "decision" and "decision_line".
[[nodiscard]] nlohmann::ordered_json plan_training(const LoadedConfig& config,
                                                   const PlanOptions& options);

// Adds "costs": what the whole run takes on every row of the price list, the cheapest first, and on
// the machine that `hardware` describes. With "hours" measured here, the row that is this machine
// has them and the others are scaled by peak figures; without, all are estimated from these. Each
// row says which ("basis"), and whether the run fits into its memory.
void add_costs(const TrainingArgs& args, nlohmann::ordered_json& plan);

// The plan as a table. With "measured_peak", "step_seconds" and "hours" where these were added.
[[nodiscard]] std::string plan_text(const nlohmann::ordered_json& plan);

}  // namespace finetune
