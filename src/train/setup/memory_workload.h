// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/plan/memory_plan.h"
#include "train/setup/assemble.h"

namespace finetune {

// Number of processes that train together, or would: from `parts`, else from the keys.
[[nodiscard]] int64_t processes_of(const TrainingArgs& args, const DataParts& parts);

// Bytes of gradients or states that ranks send at a time.
[[nodiscard]] int64_t bucket_bytes(const TrainingArgs& args);

// The workload of a short row: what passes of the model compute, in their order.
[[nodiscard]] MemoryWorkload pass_workload(const TrainingArgs& args, const DataParts& parts);

// Returns the workload to plan memory for. The data in `parts` must have been read; the model need
// not exist. `effective_batch`: samples per update of one process.
[[nodiscard]] MemoryWorkload workload_of(const TrainingArgs& args, const DataParts& parts,
                                         int64_t effective_batch);

// Bytes that a run can use on the accelerator or the CPU.
[[nodiscard]] int64_t device_memory(c10::Device device);

}  // namespace finetune
