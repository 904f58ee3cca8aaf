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
};

// Throws Error(kConfig) naming both values where data, tokenizer or model are not those that the
// run began with. `explain_data` says in which files and keys the training data differ; empty: not
// known.
void check_identity(const RunIdentity& saved, const RunIdentity& present, const FoundRun& run,
                    const std::function<std::string()>& explain_data = {});

// Throws Error(kConfig) for every key that may not change within a run, with both values.
void check_fixed_keys(const RunState& saved, const LoadedConfig& config, const FoundRun& run);

// How the update of a resumed run is divided among `ranks`, in micro-batches of
// per_device_train_batch_size. The effective batch is the one that the run began with, unless
// effective_batch_size is set. Throws Error(kConfig) where the micro-batches do not divide it.
[[nodiscard]] BatchSplit resumed_split(const LoadedConfig& config, const RunState& saved,
                                       int64_t ranks);

// "processors 2 -> 8, memory 12.7 GiB -> 25.4 GiB": what of the machine is no longer as it was when
// the run's memory was planned; empty where nothing is. Bits depend on some of it.
[[nodiscard]] std::string machine_difference(const Environment& then, const Environment& now);

// Why a run with full_determinism has other bits from here on than the version that wrote `saved`,
// where `shard_threads` threads compute a logical shard now; empty: the same.
[[nodiscard]] std::string shard_difference(const RunState& saved, int64_t shard_threads);

// One line for every changed key, and one where library or machine are others than before.
void announce_changes(const RunState& saved, const LoadedConfig& config,
                      const Environment& environment, int64_t accumulation);

}  // namespace finetune
