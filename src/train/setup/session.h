// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "finetune/config/training_args.h"
#include "finetune/state/run_state.h"
#include "train/setup/cost.h"
#include "train/setup/session_clock.h"

namespace finetune {

// One session of a training: its time limit and its cost.
struct Session {
  SessionStart start = {};
  SessionClock clock{std::nullopt};
  std::optional<CostMeter> cost = {};  // if `hardware` is set
};

// Starts a session of a run that resumes from `saved`, or of a new run. Returns null, with a
// warning, if the session's limit leaves no time or the units are used up. From now on, code that
// polls interrupt::is_requested() stops in time.
[[nodiscard]] std::shared_ptr<Session> begin_session(const TrainingArgs& args,
                                                     const SessionStart& start,
                                                     const RunState* saved);

// Whether session_hours or session_deadline leave no time; then logs a warning. Call before
// anything of the run is changed.
[[nodiscard]] bool is_session_over(const TrainingArgs& args, const SessionStart& start);

// Progress of a run, for the line that is logged when it ends early.
struct SessionProgress {
  int64_t sessions = 1;
  int64_t steps = 0;  // of this session
  int64_t steps_left = 0;
  double trained_seconds = 0.0;  // of all sessions
  double session_seconds = 0.0;  // of training, in this session
  double slow_seconds = 0.0;     // of its first kSlowSteps steps; 0: they are not known
  double startup_seconds = 0.0;  // of this session, before training
  std::optional<double> earlier_seconds_a_step = {};
  [[nodiscard]] std::optional<double> seconds_a_step() const;
  [[nodiscard]] std::optional<double> seconds_left() const;
};

// Returns "2 sessions so far, 3.1 h of training; 4.2 h left at 1.52 s a step: 1 more session of 24
// h". A periodic limit also applies to the following sessions.
[[nodiscard]] std::string describe_session(const SessionProgress& progress,
                                           const std::optional<SessionLimit>& limit);

}  // namespace finetune
