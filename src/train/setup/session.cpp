// SPDX-License-Identifier: MIT
#include "train/setup/session.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/checkpoint/layout.h"
#include "finetune/report/progress.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

std::string printed_time(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

std::string time_text(double seconds) {
  if (seconds < 99.5) return printed_time(seconds < 9.95 ? "%.1f s" : "%.0f s", seconds);
  if (seconds < 99.5 * 60) return printed_time("%.0f min", seconds / 60);
  return printed_time("%.1f h", seconds / 3600);
}

std::string count(int64_t number, const std::string& what) {
  return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

bool say_if_over(const std::optional<SessionLimit>& limit, double now) {
  if (!limit) return false;
  const double left = limit->seconds_left(now);
  if (left > limit->reserve()) return false;
  const std::string state = left <= 0 ? "was reached " + time_text(-left) + " ago"
                                      : "leaves " + time_text(left) + ", too little to train";
  log::warning(limit->reason + " " + state + ": nothing was done; " + limit->advice);
  return true;
}

}  // namespace

bool is_session_over(const TrainingArgs& args, const SessionStart& start) {
  return say_if_over(SessionLimit::of(args, start), start.now);
}

std::shared_ptr<Session> begin_session(const TrainingArgs& args, const SessionStart& start,
                                       const RunState* saved) {
  auto session = std::make_shared<Session>();
  session->start = start;
  const Json kept = saved != nullptr ? saved->session : Json::object();
  std::optional<SessionLimit> limit = SessionLimit::of(args, start);
  if (const std::optional<Hardware> hardware = hardware_of(args)) {
    const Cost before =
        Cost::from_json(kept.value("cost", Json::object()), checkpoint::kFinetuneStateFile);
    session->cost.emplace(*hardware, start.process_start(), before);
    if (args.unit_budget) {
      const SessionLimit budget = session->cost->limit(*args.unit_budget);
      if (say_if_over(budget, interrupt::seconds_since_boot())) return nullptr;
      limit = earlier(limit, budget);
    }
  }
  session->clock = SessionClock(limit);
  const auto slowest = kept.find("save_seconds");
  if (slowest != kept.end() && slowest->is_number()) {
    session->clock.expect_save(std::max(0.0, slowest->get<double>()));
  }
  session->clock.begin_start();
  return session;
}

std::optional<double> SessionProgress::seconds_a_step() const {
  const int64_t settled = steps - kSlowSteps;
  if (slow_seconds > 0 && settled >= kSlowSteps) {
    return (session_seconds - slow_seconds) / static_cast<double>(settled);
  }
  if (steps > 0) return session_seconds / static_cast<double>(steps);
  return earlier_seconds_a_step;
}

std::optional<double> SessionProgress::seconds_left() const {
  const std::optional<double> one = seconds_a_step();
  if (!one) return std::nullopt;
  return *one * static_cast<double>(steps_left);
}

std::string describe_session(const SessionProgress& progress,
                             const std::optional<SessionLimit>& limit) {
  std::string text = count(progress.sessions, "session") + " so far, " +
                     time_text(progress.trained_seconds) + " of training";
  const std::optional<double> left = progress.seconds_left();
  if (!left) return text + "; no step was measured yet";
  text += "; " + time_text(*left) + " left at " + printed_time("%.3g", *progress.seconds_a_step()) +
          " s a step";
  // Training time of one session; for a periodic limit that of an uninterrupted session.
  const bool is_periodic = limit && limit->is_periodic;
  const double usable =
      is_periodic ? limit->seconds - progress.startup_seconds : progress.session_seconds;
  if (limit && usable > 0) {
    const auto more = static_cast<int64_t>(std::ceil(*left / usable));
    text += ": " + count(std::max<int64_t>(1, more), "more session") + " of " +
            (is_periodic ? time_text(limit->seconds) : time_text(usable) + " of training");
  }
  return text;
}

}  // namespace finetune
