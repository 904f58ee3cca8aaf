// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/distributed/exchange_script.h"
#include "finetune/plan/memory_plan.h"

namespace finetune {

// What the ranks of a workload exchange in a micro-batch and in an evaluation, found by running
// both on the meta device. The same on all ranks that describe the workload alike.
[[nodiscard]] ExchangeScripts exchange_scripts(const MemoryWorkload& workload,
                                               const MemoryChoices& choices);

}  // namespace finetune
