// SPDX-License-Identifier: MIT
// The trainer's part in what a session may take: times that are measured, cost, the line at the
// end.
#include <nlohmann/json.hpp>

#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "train/clock.h"
#include "train/trainer.h"

namespace finetune {

void Trainer::begin(SessionClock::Unit unit) {
  if (!parts_.session) return;
  parts_.session->clock.note_saving(saver_->is_busy());
  parts_.session->clock.begin(unit, interrupt::seconds_since_boot());
}

void Trainer::end(SessionClock::Unit unit) {
  if (parts_.session) parts_.session->clock.end(unit, interrupt::seconds_since_boot());
}

// Until there is something measured: a save by its size, a step as in the sessions before.
void Trainer::expect_times() {
  if (!parts_.session) return;
  SessionClock& clock = parts_.session->clock;
  clock.expect_save(SessionClock::estimate_save_seconds(checkpoint_bytes(/*with_optimizer=*/true)));
  clock.expect_copies(
      static_cast<double>(storage_.mirrors()) *
      SessionClock::estimate_copy_seconds(checkpoint_bytes(/*with_optimizer=*/true)));
  if (device_is_as_before_ && state_.step > 0) {
    clock.expect(SessionClock::Unit::kStep, state_.seconds / static_cast<double>(state_.step));
  }
}

// What the next session begins with.
void Trainer::keep_session() {
  if (!parts_.session) return;
  const double slowest = parts_.session->clock.measured_save();
  if (slowest > 0) state_.session["save_seconds"] = slowest;
  if (parts_.session->cost) {
    state_.session["cost"] = parts_.session->cost->spent(interrupt::seconds_since_boot()).to_json();
  }
}

SessionProgress Trainer::session_progress() const {
  const double now = now_seconds();
  SessionProgress progress{.sessions = state_.sessions,
                           .steps = state_.step - session_first_step_,
                           .steps_left = plan_.max_steps - state_.step,
                           .trained_seconds = state_.seconds + now - counted_until_,
                           .session_seconds = now - session_start_};
  if (parts_.session) {
    const double age = interrupt::seconds_since_boot() - parts_.session->start.process_start();
    progress.startup_seconds = age - progress.session_seconds;
  }
  if (session_first_step_ > 0) {
    progress.earlier_seconds_a_step = state_.seconds / static_cast<double>(session_first_step_);
  }
  return progress;
}

std::optional<std::string> Trainer::cost_text() const {
  if (!parts_.session || !parts_.session->cost) return std::nullopt;
  return parts_.session->cost->text(
      interrupt::seconds_since_boot(),
      is_last_step() ? std::nullopt : session_progress().seconds_left());
}

void Trainer::say_session() const {
  const SessionProgress progress = session_progress();
  const std::optional<SessionLimit> limit =
      parts_.session ? parts_.session->clock.limit() : std::nullopt;
  log::info(describe_session(progress, limit));
  if (const std::optional<std::string> cost = cost_text()) log::info(*cost);
  if (progress.steps == 0 && interrupt::is_moment_reached() && limit) {
    log::warning("no step was completed in this session: " + limit->reason +
                 " leaves too little time for a step and a save, so the same again would not get "
                 "further; " +
                 limit->advice);
  }
}

}  // namespace finetune
