// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <optional>

#include "finetune/checkpoint/reader.h"
#include "finetune/distributed/world.h"
#include "finetune/kernels/parameter_store.h"

// What rank 0 decides for all processes: it alone changes files.
namespace finetune {

// What `choose` returned in rank 0, where alone it is called. An exception ends rank 0, and the
// others with it.
[[nodiscard]] std::optional<checkpoint::CheckpointEntry> share_checkpoint(
    World& world, const std::function<std::optional<checkpoint::CheckpointEntry>()>& choose);
[[nodiscard]] std::string share_text(World& world, const std::function<std::string()>& choose);

// Throws Error(kData) in a process that sees another text than rank 0: files that are not shared.
void check_same(World& world, const std::string& text, const std::string& what);
// Throws Error(kConfig) in a process that does not see rank 0's record in the folder that rank 0
// holds. `patience_seconds`: a network file system may remember for so long that a file was
// missing.
void check_same_folder(World& world, const std::string& folder, double patience_seconds = 60);
// As check_same() for weights, which each rank loaded itself. A collective; no effect with one
// rank.
void check_same_weights(World& world, const std::vector<Parameter>& parameters);

}  // namespace finetune
