// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "finetune/data/loader.h"

// Decides what to do about an update with a non-finite loss or gradient, or a spike. Pure functions
// of the keys and of the checkpoint's content, so that a resumed run decides the same.
namespace finetune {

enum class DivergencePolicy { kStop, kSkip, kRollBack };

struct DivergenceOptions {
  DivergencePolicy policy = DivergencePolicy::kStop;
  int64_t max_tries = 3;
  std::optional<double> loss_spike_factor = {};
  std::optional<double> grad_norm_spike_factor = {};
};

// Samples of an update that is skipped when training reaches it again.
struct LeftOut {
  Position position;
  int64_t samples = 0;
  friend bool operator==(const LeftOut&, const LeftOut&) = default;
};

// The part of RunState on which decisions depend.
struct DivergenceState {
  int64_t skipped_updates = 0;  // steps that the policy skipped
  int64_t rollbacks = 0;
  int64_t tries = 0;          // faults since the last progress
  int64_t faulty_step = 0;    // the latest step with a fault; a later update is progress
  int64_t watched_until = 0;  // check weights and states after every update up to this step
  std::vector<LeftOut> left_out = {};
  // Values of the most recent updates, oldest first; empty if no spike factor is set.
  std::vector<double> recent_losses = {};
  std::vector<double> recent_grad_norms = {};
};

inline constexpr size_t kSpikeWindow = 32;
inline constexpr size_t kLeastForSpike = 8;  // with fewer updates, no spike is detected

// Returns why an update must not be applied, as a clause ("the loss is nan and the gradient norm
// nan"); nullopt if it may be.
[[nodiscard]] std::optional<std::string> fault_of(const DivergenceOptions& options,
                                                  const DivergenceState& state, double loss,
                                                  double grad_norm);
// Whether the loss alone is a fault; can be called before the gradient exists.
[[nodiscard]] bool has_faulty_loss(const DivergenceOptions& options, const DivergenceState& state,
                                   double loss);

enum class Remedy { kStop, kSkip, kRollBack };

struct Damage {
  bool is_half_applied = false;  // some weights were already updated
  bool is_in_state = false;      // weights or optimizer states contain NaN or Inf
};

// Returns what to do; rolls back if skipping cannot help. Requires: `state` already counts the
// current fault.
[[nodiscard]] Remedy remedy_for(const DivergenceOptions& options, const DivergenceState& state,
                                const Damage& damage);

void count_fault(DivergenceState& state, int64_t step);
// Records that an update was applied in `step`.
void count_update(const DivergenceOptions& options, DivergenceState& state, int64_t step,
                  double loss, double grad_norm);

// Whether the update of `samples` samples starting at `position` includes one to be skipped.
[[nodiscard]] bool is_left_out(const DivergenceState& state, const Position& position,
                               int64_t samples);

// Returns the state after a rollback: `before` with one more rollback, but with the skipped updates
// and the recent losses and norms of `restored`.
[[nodiscard]] DivergenceState after_rollback(const DivergenceState& before,
                                             const DivergenceState& restored);

}  // namespace finetune
