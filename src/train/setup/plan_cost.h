// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "finetune/config/training_args.h"
#include "finetune/plan/memory_plan.h"

namespace finetune {

// Returns the floating-point operations of one update: matrix products of encoder and head, forward
// and backward, with all rows as long as the longest.
[[nodiscard]] double flops_of_update(const MemoryWorkload& workload, const MemoryChoices& choices);

// Returns the lines of plan_text() about the result of add_costs(); empty if the plan has no costs.
[[nodiscard]] std::string costs_text(const nlohmann::ordered_json& plan);

}  // namespace finetune
