// SPDX-License-Identifier: MIT
#include "train/setup/session_clock.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "finetune/base/clock.h"
#include "finetune/base/interrupt.h"
#include "finetune/config/session_time.h"

extern char** environ;

namespace finetune {
namespace {

constexpr double kFading = 0.99;
constexpr double kReserveShare = 0.01;
constexpr double kLeastReserve = 1.0;
constexpr double kMostReserve = 60.0;

// Returns the seconds from the machine's boot to the start of a process, field 22 of
// /proc/PID/stat; nullopt if the system does not report it.
std::optional<double> start_of_process(const std::string& process) {
  std::ifstream file("/proc/" + process + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = text.rfind(')');  // the second field may contain anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream rest(text.substr(name_end + 1));
  std::string word;
  for (int field = 3; field <= 22; ++field) rest >> word;
  char* end = nullptr;
  const double ticks = std::strtod(word.c_str(), &end);
  if (!rest || end == word.c_str()) return std::nullopt;
  return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

std::string hours_text(double hours) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", hours);
  return text;
}

// KAGGLE_USERNAME and KAGGLE_KEY are also set on other machines, so they do not count.
bool is_in_hosted_notebook() {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (text.starts_with("COLAB_") || text.starts_with("KAGGLE_KERNEL_")) return true;
  }
  return false;
}

}  // namespace

double SessionLimit::reserve() const {
  return std::clamp(kReserveShare * seconds, kLeastReserve, kMostReserve);
}

SessionStart SessionStart::read() {
  SessionStart start{.now = interrupt::seconds_since_boot(),
                     .is_hosted_notebook = is_in_hosted_notebook(),
                     .wall_time = static_cast<int64_t>(unix_seconds())};
  start.process_age = std::max(0.0, start.now - start_of_process("self").value_or(start.now));
  // The first process of a container is younger than the machine.
  start.boot_age = std::max(start.process_age, start.now - start_of_process("1").value_or(0.0));
  return start;
}

std::optional<SessionLimit> SessionLimit::of(const TrainingArgs& args, const SessionStart& start) {
  if (args.session_hours) {
    const double seconds = *args.session_hours * 3600.0;
    const bool from_boot =
        args.session_clock.value_or(start.is_hosted_notebook ? "boot" : "process") == "boot";
    return SessionLimit{
        .moment = start.now - (from_boot ? start.boot_age : start.process_age) + seconds,
        .seconds = seconds,
        .reason = "session_hours (" + hours_text(*args.session_hours) + " h" +
                  (from_boot ? " from the machine's boot)" : ")"),
        .is_periodic = true};
  }
  if (!args.session_deadline) return std::nullopt;
  const std::optional<int64_t> time = session_time(*args.session_deadline, start.wall_time);
  if (!time) return std::nullopt;  // the configuration was refused for it
  const auto left = static_cast<double>(*time - start.wall_time);
  return SessionLimit{.moment = start.now + left,
                      .seconds = std::max(0.0, left + start.process_age),
                      .reason = "session_deadline (" + *args.session_deadline + ")"};
}

std::optional<SessionLimit> earlier(const std::optional<SessionLimit>& a,
                                    const std::optional<SessionLimit>& b) {
  if (!a || !b) return a ? a : b;
  return a->moment <= b->moment ? a : b;
}

void SessionClock::expect_save(double seconds) { save_ = std::max(save_, seconds); }

void SessionClock::expect(Unit unit, double seconds) {
  double& known = longest_[static_cast<size_t>(unit)];
  known = std::max(known, seconds);
}

double SessionClock::estimate_save_seconds(uint64_t bytes) {
  return 1.0 + 3.0 * static_cast<double>(bytes) / 1e9;
}

double SessionClock::estimate_copy_seconds(uint64_t bytes) {
  return 5.0 + 60.0 * static_cast<double>(bytes) / 1e9;
}

void SessionClock::begin(Unit unit, double now) {
  end(unit, now);
  begun_[static_cast<size_t>(unit)] = now;
  if (limit_) interrupt::request_at(limit_->moment - margin(unit), limit_->reason);
}

void SessionClock::end(Unit unit, double now) {
  double& begun = begun_[static_cast<size_t>(unit)];
  double& longest = longest_[static_cast<size_t>(unit)];
  if (begun >= 0) longest = std::max(now - begun, longest * kFading);
  begun = -1;
}

void SessionClock::note_save(double seconds) { measured_save_ = std::max(measured_save_, seconds); }

void SessionClock::begin_start() const {
  if (limit_) interrupt::request_at(limit_->moment - limit_->reserve(), limit_->reason);
}

double SessionClock::margin(Unit unit) const {
  if (!limit_) return 0.0;
  double longest_unit = longest(unit);
  if (unit == Unit::kMicroBatch) longest_unit += longest(Unit::kUpdate);
  if (unit == Unit::kEvaluationBatch && longest_unit == 0)
    longest_unit = longest(Unit::kMicroBatch);
  return (is_saving_ ? 3.0 : 2.0) * slowest_save() + copies_ + longest_unit + limit_->reserve();
}

}  // namespace finetune
