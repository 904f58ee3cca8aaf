// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>

#include "finetune/config/batch_split.h"
#include "finetune/config/load.h"
#include "finetune/state/run_state.h"

namespace finetune {

// Where a run was found, and what is offered to a user who meant another run.
struct FoundRun {
  std::string folder;  // of a checkpoint or a finished model
  std::string way_out = "choose another output_dir, or start over with --restart";
  bool compares_evaluations = false;  // later ones with earlier ones, to choose the best model
  std::string starts = {};  // names of the models that it began with, then and now; empty: unknown
};

// Throws Error(kConfig) naming both values where data, tokenizer or model are not those that the
// run began with. `explain_data` says in which files and keys the training data differ; empty: not
// known.
void check_identity(const RunIdentity& saved, const RunIdentity& present, const FoundRun& run,
                    const std::function<std::string()>& explain_data = {});

// Returns the keys with what the run decided at its start for those that leave it to the run.
[[nodiscard]] LoadedConfig with_decided_keys(const LoadedConfig& config, const RunState& saved);

// Throws Error(kConfig) for every key that may not change within a run, with both values.
void check_fixed_keys(const RunState& saved, const LoadedConfig& config, const FoundRun& run);

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

// Returns why a run has other bits from here on than with the program that wrote the checkpoint
// (kArithmeticVersion), as far as the run computes what changed; empty: the same bits.
[[nodiscard]] std::string arithmetic_difference(const Environment& then, const Environment& now,
                                                const TrainingArgs& args);

// Logs one line for every changed key, and one if library or machine differ from before.
void announce_changes(const RunState& saved, const LoadedConfig& config,
                      const Environment& environment, int64_t accumulation);

}  // namespace finetune
