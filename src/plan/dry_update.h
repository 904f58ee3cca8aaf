// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "finetune/plan/memory_plan.h"

namespace finetune {

// What an update allocates in addition to weights and optimizer states, in bytes: the code that
// trains, run on the meta device with the sizes of the workload.
struct DryUpdate {
  // The moment at which most is alive, from the first layer to the last gradient.
  int64_t gradients = 0;         // of it
  int64_t others = 0;            // activations and temporary memory
  int64_t kept = 0;              // alive when the backward pass begins, without gradients
  int64_t head = 0;              // at most, in the head of the model
  int64_t evaluation = 0;        // at most, in an evaluation of eval_batch samples; 0: none
  bool keeps_gradients = false;  // their memory, from one update to the next
};

// `micro_batches`: how many are computed at the same time, each with
// separate memory but for the gradients.
[[nodiscard]] DryUpdate dry_update(const MemoryWorkload& workload, const MemoryChoices& choices,
                                   int64_t micro_batches);

}  // namespace finetune
