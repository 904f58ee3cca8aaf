// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/distributed/exchange_script.h"
#include "finetune/plan/memory_plan.h"

namespace finetune {

// What the ranks of a workload exchange in a micro-batch and in an evaluation, found by running
// both on the meta device. The same on all ranks that describe the workload alike.
[[nodiscard]] ExchangeScripts exchange_scripts(const MemoryWorkload& workload,
                                               const MemoryChoices& choices);

// What a rank's link carries in an update, in bytes.
struct ExchangedBytes {
  int64_t weights = 0;    // received
  int64_t gradients = 0;  // sent; received are as many
};
[[nodiscard]] ExchangedBytes exchanged_bytes(const MemoryWorkload& workload,
                                             const MemoryChoices& choices);

}  // namespace finetune
