// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "finetune/distributed/world.h"
#include "train/save/checkpoint_saver.h"

// Decisions that all ranks must make in the same way: each function returns the same value on every
// rank. Collectives: all ranks must call them at the same points. With one rank they only read
// local state.
namespace finetune {

// Records that another rank was asked to stop: interrupt::is_requested() is true from now on.
void note_stop();

// Returns whether any rank was asked to stop.
[[nodiscard]] bool stop_is_requested(World& world);
// The same between two updates; also shares the outcome of rank 0's save that found NaN or Inf.
[[nodiscard]] bool agree_between_updates(World& world, std::optional<SaveOutcome>& nonfinite_save);

// Returns rank 0's value on every rank.
[[nodiscard]] double broadcast(World& world, double value);

// Returns the least of the ranks' values.
[[nodiscard]] int64_t least(World& world, int64_t value);

// Rank 0's norm of the gradients, and whether any rank was asked to stop in the meantime.
struct SharedNorm {
  double norm = 0.0;
  bool stops = false;
};
[[nodiscard]] SharedNorm share_norm(World& world, double norm);

}  // namespace finetune
