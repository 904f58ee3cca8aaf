// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>

#include "finetune/config/batch_split.h"
#include "finetune/config/load.h"
#include "finetune/state/run_state.h"

namespace finetune {

// Throws Error(kConfig) with both values if data, tokenizer or model differ from those that the run
// began with. `explain_data` names the files and keys in which the training data differ; empty:
// unknown.
void check_identity(const RunIdentity& saved, const RunIdentity& present,
                    const std::string& checkpoint,
                    const std::function<std::string()>& explain_data = {});

// Throws Error(kConfig) for every key that may not change within a run, with both values.
void check_fixed_keys(const RunState& saved, const LoadedConfig& config,
                      const std::string& checkpoint);

// Returns how `ranks` divide the update of a resumed run into micro-batches of
// per_device_train_batch_size. The effective batch is that of the run's first session, unless
// effective_batch_size is set. Throws Error(kConfig) if micro-batches do not divide it.
[[nodiscard]] BatchSplit resumed_split(const LoadedConfig& config, const RunState& saved,
                                       int64_t ranks);

// Returns "processors 2 -> 8, memory 12.7 GiB -> 25.4 GiB": the differences between the machine now
// and when the run's memory was planned, on some of which bits depend. Empty if there are none.
[[nodiscard]] std::string machine_difference(const Environment& then, const Environment& now);

// Returns why a run with full_determinism has other bits from here on than with the version that
// wrote `saved`, if `shard_threads` threads now compute a logical shard; empty: the same bits.
[[nodiscard]] std::string shard_difference(const RunState& saved, int64_t shard_threads);

// Logs one line for every changed key, and one if library or machine differ from before.
void announce_changes(const RunState& saved, const LoadedConfig& config,
                      const Environment& environment, int64_t accumulation);

}  // namespace finetune
