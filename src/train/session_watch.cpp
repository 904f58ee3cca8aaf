// SPDX-License-Identifier: MIT
#include "train/session_watch.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "train/clock.h"

namespace finetune {

void SessionWatch::start() {
  start_ = now_seconds();
  counted_until_ = start_;
  first_step_ = run_.state.step;
}

void SessionWatch::expect_times(uint64_t checkpoint_bytes) {
  if (!run_.parts.session) return;
  SessionClock& clock = run_.parts.session->clock;
  clock.expect_save(SessionClock::estimate_save_seconds(checkpoint_bytes));
  clock.expect_copies(static_cast<double>(run_.storage.mirrors()) *
                      SessionClock::estimate_copy_seconds(checkpoint_bytes));
  const RunState& state = run_.state;
  if (run_.is_same_device && state.step > 0) {
    clock.expect(SessionClock::Unit::kStep, state.seconds / static_cast<double>(state.step));
  }
}

void SessionWatch::begin(SessionClock::Unit unit, bool is_saving) {
  if (!run_.parts.session) return;
  run_.parts.session->clock.note_saving(is_saving);
  run_.parts.session->clock.begin(unit, interrupt::seconds_since_boot());
}

void SessionWatch::end(SessionClock::Unit unit) {
  if (run_.parts.session) run_.parts.session->clock.end(unit, interrupt::seconds_since_boot());
}

void SessionWatch::note_save(double seconds) {
  if (run_.parts.session) run_.parts.session->clock.note_save(seconds);
}

double SessionWatch::tokens_per_second() const {
  return static_cast<double>(tokens_) / std::max(1e-9, seconds());
}

double SessionWatch::seconds() const { return now_seconds() - start_; }

void SessionWatch::count_seconds() {
  const double now = now_seconds();
  run_.state.seconds += now - counted_until_;
  counted_until_ = now;
}

void SessionWatch::skip_seconds() { counted_until_ = now_seconds(); }

void SessionWatch::keep() {
  if (!run_.parts.session) return;
  const double slowest = run_.parts.session->clock.measured_save();
  if (slowest > 0) run_.state.session["save_seconds"] = slowest;
  if (run_.parts.session->cost) {
    run_.state.session["cost"] =
        run_.parts.session->cost->spent(interrupt::seconds_since_boot()).to_json();
  }
}

SessionProgress SessionWatch::progress() const {
  const RunState& state = run_.state;
  const double now = now_seconds();
  SessionProgress progress{.sessions = state.sessions,
                           .steps = state.step - first_step_,
                           .steps_left = run_.plan.max_steps - state.step,
                           .trained_seconds = state.seconds + now - counted_until_,
                           .session_seconds = now - start_};
  if (run_.parts.session) {
    const double age = interrupt::seconds_since_boot() - run_.parts.session->start.process_start();
    progress.startup_seconds = age - progress.session_seconds;
  }
  if (first_step_ > 0) {
    progress.earlier_seconds_a_step = state.seconds / static_cast<double>(first_step_);
  }
  return progress;
}

std::optional<double> SessionWatch::seconds_left() const { return progress().seconds_left(); }

std::optional<double> SessionWatch::session_seconds_left() const {
  if (!run_.parts.session || !run_.parts.session->clock.limit()) return std::nullopt;
  return run_.parts.session->clock.limit()->seconds_left(interrupt::seconds_since_boot());
}

std::optional<std::string> SessionWatch::cost_text() const {
  if (!run_.parts.session || !run_.parts.session->cost) return std::nullopt;
  return run_.parts.session->cost->text(
      interrupt::seconds_since_boot(),
      run_.is_last_step() ? std::nullopt : progress().seconds_left());
}

void SessionWatch::log_progress() const {
  const SessionProgress reached = progress();
  const std::optional<SessionLimit> limit =
      run_.parts.session ? run_.parts.session->clock.limit() : std::nullopt;
  log::info(describe_session(reached, limit));
  if (const std::optional<std::string> cost = cost_text()) log::info(*cost);
  if (reached.steps == 0 && interrupt::is_moment_reached() && limit) {
    log::warning("no step was completed in this session: " + limit->reason +
                 " leaves too little time for a step and a save, so the same again would not get "
                 "further; " +
                 limit->advice);
  }
}

}  // namespace finetune
