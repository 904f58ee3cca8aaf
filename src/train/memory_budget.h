// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "finetune/plan/memory_plan.h"
#include "finetune/state/run_state.h"
#include "train/assemble.h"

namespace finetune {

// What the run picked before, where it is used again on this machine. Where the machine is another
// than the checkpoint's, `why` says so.
[[nodiscard]] std::optional<MemoryDecision> kept_decision(const LoadedConfig& config,
                                                          const RunState& saved,
                                                          const Environment& now, std::string& why);

// What memory_budget makes of the keys, said in one line; nothing without that key. A run that goes
// on from `saved` keeps what it began with, which its bits depend on, unless the machine is another
// one, the keys ask for something else, or the budget is too small for it now. `parts` hold data
// and no model. Throws Error(kConfig) where nothing fits.
[[nodiscard]] std::optional<MemoryDecision> apply_memory_budget(const LoadedConfig& config,
                                                                const Parts& parts,
                                                                const RunState* saved);

// Parts::batches_at_once of a run with these keys, to which `decision` was applied: as many as
// there are threads and memory for. Results do not depend on it, so every start chooses again.
[[nodiscard]] int64_t batches_at_once(const LoadedConfig& config, const Parts& parts,
                                      const RunState* saved,
                                      const std::optional<MemoryDecision>& decision);
// The same for a planned workload.
[[nodiscard]] int64_t batches_at_once(const LoadedConfig& config, const MemoryWorkload& workload,
                                      const MemoryChoices& choices);

// The keys as the run took them: with what memory_budget picked for it, where it would again.
[[nodiscard]] LoadedConfig with_saved_choices(const LoadedConfig& config, const RunState& saved);

}  // namespace finetune
