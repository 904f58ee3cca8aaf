// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "finetune/plan/memory_plan.h"
#include "finetune/state/run_state.h"
#include "train/setup/assemble.h"

namespace finetune {

// Returns the run's earlier decision if it applies on this machine. If the machine differs from
// that of the checkpoint, `why` describes the difference.
[[nodiscard]] std::optional<MemoryDecision> kept_decision(const LoadedConfig& config,
                                                          const RunState& saved,
                                                          const Environment& now, std::string& why);

// Returns the decision of memory_budget and logs it in one line; nullopt without that key. A run
// that resumes from `saved` keeps its decision, because its bits depend on it, unless the machine
// differs, the keys ask for something else, or the budget is now too small. `parts` contain data
// and no model. Throws Error(kConfig) if nothing fits.
[[nodiscard]] std::optional<MemoryDecision> apply_memory_budget(const LoadedConfig& config,
                                                                const DataParts& parts,
                                                                const RunState* saved);

// Returns Parts::batches_at_once of a run with these keys after `decision` was applied: as many
// batches as there are threads and memory for. Results do not depend on it, so each session chooses
// again.
[[nodiscard]] int64_t batches_at_once(const TrainingArgs& args, const DataParts& parts,
                                      const RunState* saved,
                                      const std::optional<MemoryDecision>& decision);
// The same for a planned workload.
[[nodiscard]] int64_t batches_at_once(const TrainingArgs& args, const MemoryWorkload& workload,
                                      const MemoryChoices& choices);

// Returns the keys with the run's memory_budget decision, if it would be made again.
[[nodiscard]] LoadedConfig with_saved_choices(const LoadedConfig& config, const RunState& saved);

}  // namespace finetune
