// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "finetune/config/training_args.h"

namespace finetune {

// What the system says of this process and machine. Seconds on interrupt::seconds_since_boot().
struct SessionStart {
  double now = 0.0;
  double process_age = 0.0;
  double boot_age = 0.0;  // of the machine; in a container, of the container
  bool is_hosted_notebook = false;
  int64_t wall_time = 0;  // seconds since 1970

  [[nodiscard]] double process_start() const { return now - process_age; }
  [[nodiscard]] static SessionStart read();
};

// The moment by which everything has to be saved, and the key that says so.
struct SessionLimit {
  double moment = 0.0;
  double seconds = 0.0;                                             // from where it is counted
  std::string reason = {};                                          // "session_hours (24 h)"
  std::string advice = "start another session, or change the key";  // where it left no time
  bool is_periodic = false;                                         // the next session is as long

  // What session_hours or session_deadline say; nothing where both are unset. A wall clock that is
  // put right during the session moves nothing.
  [[nodiscard]] static std::optional<SessionLimit> of(const TrainingArgs& args,
                                                      const SessionStart& start);
  [[nodiscard]] double seconds_left(double now) const { return moment - now; }
  // What stays free in any case: a hundredth of the session, one second to one minute.
  [[nodiscard]] double reserve() const;
};

// The earlier one of two limits.
[[nodiscard]] std::optional<SessionLimit> earlier(const std::optional<SessionLimit>& a,
                                                  const std::optional<SessionLimit>& b);

// Requests the stop (interrupt::request_at) early enough that the last save ends before the limit:
// twice the slowest save seen (and once more while another save is being written), the longest
// duration of the next operation, and the limit's reserve. Call begin() before each operation.
// Without a limit it only measures.
class SessionClock {
 public:
  enum class Unit : uint8_t { kStep, kMicroBatch, kUpdate, kEvaluationBatch };

  explicit SessionClock(std::optional<SessionLimit> limit) : limit_(std::move(limit)) {}

  // Before anything can be measured: what it took in earlier sessions, or is thought to take.
  void expect_save(double seconds);
  void expect(Unit unit, double seconds);
  // 1 s and 3 s a GB: a slow disk.
  [[nodiscard]] static double estimate_save_seconds(uint64_t bytes);
  // What copying the last save to mirrors takes beside.
  void expect_copies(double seconds) { copies_ = seconds; }
  // 5 s and 60 s a GB, for one mirror: a mounted drive, read back.
  [[nodiscard]] static double estimate_copy_seconds(uint64_t bytes);

  // The next unit starts; one of the same kind that is open ends. `now`: seconds_since_boot().
  void begin(Unit unit, double now);
  // The open unit ends, if there is one.
  void end(Unit unit, double now);
  // A save took so long, from its request until it was whole.
  void note_save(double seconds);
  // Whether a save is being written now, for which the last one would have to wait.
  void note_saving(bool is_saving) { is_saving_ = is_saving; }

  // Nothing can be saved yet: only the limit itself counts.
  void begin_start() const;

  // Whether `unit` and a save may no longer fit.
  [[nodiscard]] bool must_stop(double now, Unit unit) const;
  // How long before the limit `unit` may no longer start.
  [[nodiscard]] double margin(Unit unit) const;
  [[nodiscard]] double slowest_save() const { return measured_save_ > 0 ? measured_save_ : save_; }
  [[nodiscard]] double measured_save() const { return measured_save_; }
  [[nodiscard]] const std::optional<SessionLimit>& limit() const { return limit_; }

 private:
  static constexpr size_t kUnits = 4;

  [[nodiscard]] double longest(Unit unit) const { return longest_[static_cast<size_t>(unit)]; }

  std::optional<SessionLimit> limit_;
  std::array<double, kUnits> longest_ = {};  // fades, so that one pause does not count for ever
  std::array<double, kUnits> begun_ = {-1, -1, -1, -1};
  double save_ = 0.0;  // expected
  double measured_save_ = 0.0;
  double copies_ = 0.0;
  bool is_saving_ = false;
};

}  // namespace finetune
