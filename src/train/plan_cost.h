// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "finetune/config/training_args.h"
#include "finetune/plan/memory_plan.h"

namespace finetune {

// Floating-point operations of one update: products of the encoder and the head, forward and
// backward, with every row as long as the longest.
[[nodiscard]] double flops_of_update(const MemoryWorkload& workload, const MemoryChoices& choices);

// The lines of plan_text() for what add_costs() found; empty where the plan holds no costs.
[[nodiscard]] std::string costs_text(const nlohmann::ordered_json& plan);

}  // namespace finetune
