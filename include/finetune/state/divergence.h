// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "finetune/data/loader.h"

// Decides about an update whose loss or gradient is non-finite, or a spike. Pure functions of the
// keys and of a checkpoint's content, so that a resumed run decides the same.
namespace finetune {

enum class DivergencePolicy { kStop, kSkip, kRollBack };

struct DivergenceOptions {
  DivergencePolicy policy = DivergencePolicy::kStop;
  int64_t max_tries = 3;
  std::optional<double> loss_spike_factor = {};
  std::optional<double> grad_norm_spike_factor = {};
};

// The samples of an update that is left out when its turn comes again.
struct LeftOut {
  Position position;
  int64_t samples = 0;
  friend bool operator==(const LeftOut&, const LeftOut&) = default;
};

// What of a run's past decides: part of RunState.
struct DivergenceState {
  int64_t skipped_updates = 0;  // steps without an update, by the policy
  int64_t rollbacks = 0;
  int64_t tries = 0;          // faults since the last progress
  int64_t faulty_step = 0;    // the latest step with a fault: an update after it is progress
  int64_t watched_until = 0;  // up to this step weights and states are looked at after every update
  std::vector<LeftOut> left_out = {};
  // Of the newest updates, oldest first; empty where no factor asks for them.
  std::vector<double> recent_losses = {};
  std::vector<double> recent_grad_norms = {};
};

inline constexpr size_t kSpikeWindow = 32;
inline constexpr size_t kLeastForSpike = 8;  // fewer updates have no median to go by

// Why an update may not be applied, as a clause ("the loss is nan and the gradient norm nan");
// nothing where it may.
[[nodiscard]] std::optional<std::string> fault_of(const DivergenceOptions& options,
                                                  const DivergenceState& state, double loss,
                                                  double grad_norm);
// Whether the loss alone is a fault: before its gradient exists.
[[nodiscard]] bool has_faulty_loss(const DivergenceOptions& options, const DivergenceState& state,
                                   double loss);

enum class Remedy { kStop, kSkip, kRollBack };

struct Damage {
  bool is_half_applied = false;  // some weights were updated already
  bool is_in_state = false;      // weights or optimizer states are no numbers
};

// `state` already counts the current fault. Rolls back if skipping does not help.
[[nodiscard]] Remedy remedy_for(const DivergenceOptions& options, const DivergenceState& state,
                                const Damage& damage);

void count_fault(DivergenceState& state, int64_t step);
// An update was applied in `step`.
void count_update(const DivergenceOptions& options, DivergenceState& state, int64_t step,
                  double loss, double grad_norm);

// Whether an update over `samples` samples from `position` on holds one that is left out.
[[nodiscard]] bool is_left_out(const DivergenceState& state, const Position& position,
                               int64_t samples);

// State that survives a rollback: all counters except the window, and the skipped samples.
[[nodiscard]] DivergenceState behind_rollback(const DivergenceState& before,
                                              const DivergenceState& restored);

}  // namespace finetune
