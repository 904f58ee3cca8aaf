// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/plan/memory_plan.h"
#include "train/assemble.h"

namespace finetune {

// That train together, or would: as `parts` or the keys have it.
[[nodiscard]] int64_t processes_of(const TrainingArgs& args, const Parts& parts);

// What memory is planned for, from parts whose data are read; the model need not be made yet.
// `effective_batch`: of one process.
[[nodiscard]] MemoryWorkload workload_of(const LoadedConfig& config, const Parts& parts,
                                         int64_t effective_batch);

// What is attainable of an accelerator, or on the CPU.
[[nodiscard]] int64_t device_memory(c10::Device device);

}  // namespace finetune
