// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "finetune/plan/memory_plan.h"

namespace finetune {

// A change of the configuration that lowers the peak.
struct MemorySaving {
  std::string change;  // "gradient_checkpointing: true"
  int64_t bytes = 0;   // reduction of the predicted peak
};

// Returns the single changes that save most, largest first: at most `most`, each saving at least 1
// MiB.
[[nodiscard]] std::vector<MemorySaving> memory_savings(const MemoryWorkload& workload,
                                                       const MemoryChoices& choices,
                                                       size_t most = 3);

// Returns what was needed, what is attainable (0: unknown) and the settings that help, in short
// lines that each begin with a newline.
[[nodiscard]] std::string memory_advice(const MemoryWorkload& workload,
                                        const MemoryChoices& choices, int64_t attainable);

}  // namespace finetune
