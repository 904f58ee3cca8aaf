// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "finetune/config/training_args.h"
#include "finetune/state/run_state.h"
#include "train/cost.h"
#include "train/session_clock.h"

namespace finetune {

// One start of a training: how long it may take, and what it costs.
struct Session {
  SessionStart start = {};
  SessionClock clock{std::nullopt};
  std::optional<CostMeter> cost = {};  // with `hardware`
};

// For a run that resumes from `saved`, or begins. Null, with a warning, if the session's limit
// leaves no time or the units are spent. From here on, code that polls interrupt::is_requested()
// stops in time.
[[nodiscard]] std::shared_ptr<Session> begin_session(const TrainingArgs& args,
                                                     const SessionStart& start,
                                                     const RunState* saved);

// Whether session_hours or session_deadline leave no time; then a warning says so. Before anything
// of the run is touched.
[[nodiscard]] bool is_session_over(const TrainingArgs& args, const SessionStart& start);

// How far a run is, for the line at its early end.
struct SessionProgress {
  int64_t sessions = 1;
  int64_t steps = 0;  // of this session
  int64_t steps_left = 0;
  double trained_seconds = 0.0;  // of all sessions
  double session_seconds = 0.0;  // of training, in this session
  double startup_seconds = 0.0;  // of this session, before training
  std::optional<double> earlier_seconds_a_step = {};
  [[nodiscard]] std::optional<double> seconds_a_step() const;
  [[nodiscard]] std::optional<double> seconds_left() const;
};

// "2 sessions so far, 3.1 h of training; 4.2 h left at 1.52 s a step: 1 more session of 24 h". The
// limit: what the next session will have too, where it is periodic.
[[nodiscard]] std::string describe_session(const SessionProgress& progress,
                                           const std::optional<SessionLimit>& limit);

}  // namespace finetune
