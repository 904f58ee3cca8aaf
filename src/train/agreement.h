// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "finetune/distributed/world.h"
#include "train/checkpoint_saver.h"

// What all ranks have to agree on before they go separate ways: each function returns the same in
// every rank. Collectives: all ranks call them at the same places. In a world of one they only
// look.
namespace finetune {

// A stop was requested in another rank: from here on interrupt::is_requested() is true in this one.
void note_stop();

// Whether any rank was asked to stop.
[[nodiscard]] bool stop_is_requested(World& world);
// The same between two updates, together with what a save of rank 0 found to be NaN or Inf.
[[nodiscard]] bool agree_between_updates(World& world, std::optional<SaveOutcome>& nonfinite_save);

// Rank 0's value.
[[nodiscard]] double broadcast(World& world, double value);

// Rank 0's norm of the gradients, and whether a rank was asked to stop meanwhile.
struct SharedNorm {
  double norm = 0.0;
  bool stops = false;
};
[[nodiscard]] SharedNorm share_norm(World& world, double norm);

}  // namespace finetune
