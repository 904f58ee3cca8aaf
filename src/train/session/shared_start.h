// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <optional>

#include "finetune/checkpoint/reader.h"
#include "finetune/data/token_cache.h"
#include "finetune/distributed/world.h"
#include "finetune/params/store.h"

// Decisions of rank 0 for all processes, because only rank 0 changes files.
namespace finetune {

// Return the result of `choose`, which only rank 0 calls. If it throws, rank 0 ends, and the other
// ranks with it.
[[nodiscard]] std::optional<checkpoint::CheckpointEntry> share_checkpoint(
    World& world, const std::function<std::optional<checkpoint::CheckpointEntry>()>& choose);
[[nodiscard]] std::string share_text(World& world, const std::function<std::string()>& choose);

// Throws Error(kData) in a process whose text differs from rank 0's, which means that files are not
// shared.
void check_same(World& world, const std::string& text, const std::string& what);
// Throws Error(kConfig) in a process that does not see rank 0's lock record in the folder.
// `timeout_seconds`: how long to retry, because network file systems cache the absence of a file.
void check_same_folder(World& world, const std::string& folder, double timeout_seconds = 60);
// Like check_same(), for weights that each rank loaded itself, without the base of an adapter. A
// collective; does nothing with one rank.
void check_same_weights(World& world, const std::vector<Parameter>& parameters);
// The same for the folder of an adapter's base. Reads the weights only if the ranks do not see the
// same unchanged files, and then hashes them once for each state of the files (run_inputs.h).
void check_same_base(World& world, const std::string& folder, const TokenCacheOptions& cache);

}  // namespace finetune
