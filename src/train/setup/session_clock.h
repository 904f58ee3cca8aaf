// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "finetune/config/training_args.h"

namespace finetune {

// What the system reports about this process and machine. Seconds of
// interrupt::seconds_since_boot().
struct SessionStart {
  double now = 0.0;
  double process_age = 0.0;
  double boot_age = 0.0;  // of the machine; in a container, of the container
  bool is_hosted_notebook = false;
  int64_t wall_time = 0;  // seconds since 1970

  [[nodiscard]] double process_start() const { return now - process_age; }
  [[nodiscard]] static SessionStart read();
};

// The moment by which everything must be saved, and the key that sets it.
struct SessionLimit {
  double moment = 0.0;
  double seconds = 0.0;                                             // length of the session
  std::string reason = {};                                          // "session_hours (24 h)"
  std::string advice = "start another session, or change the key";  // if no time is left
  bool is_periodic = false;                                         // also limits the next session

  // Returns the limit of session_hours or session_deadline; nullopt if both are unset. A correction
  // of the wall clock during the session does not move it.
  [[nodiscard]] static std::optional<SessionLimit> of(const TrainingArgs& args,
                                                      const SessionStart& start);
  [[nodiscard]] double seconds_left(double now) const { return moment - now; }
  // Seconds that stay free in any case: a hundredth of the session, between one second and one
  // minute.
  [[nodiscard]] double reserve() const;
};

// Returns the earlier of two limits.
[[nodiscard]] std::optional<SessionLimit> earlier(const std::optional<SessionLimit>& a,
                                                  const std::optional<SessionLimit>& b);

// Requests the stop (interrupt::request_at) early enough that the last save ends before the limit:
// by twice the slowest save so far (three times while another save is being written), the longest
// duration of the next operation, and the limit's reserve. Call begin() before each operation.
// Without a limit it only measures.
class SessionClock {
 public:
  enum class Unit : uint8_t { kStep, kMicroBatch, kUpdate, kEvaluationBatch };

  explicit SessionClock(std::optional<SessionLimit> limit) : limit_(std::move(limit)) {}

  // Expected durations until they are measured: from earlier sessions, or estimated.
  void expect_save(double seconds);
  void expect(Unit unit, double seconds);
  // Assumes a slow disk: 1 s and 3 s per GB.
  [[nodiscard]] static double estimate_save_seconds(uint64_t bytes);
  // Additional seconds for copying the last save to mirrors.
  void expect_copies(double seconds) { copies_ = seconds; }
  // Assumes one mirror on a mounted drive, with read-back: 5 s and 60 s per GB.
  [[nodiscard]] static double estimate_copy_seconds(uint64_t bytes);

  // Starts a unit and ends an open one of the same kind. `now`: seconds_since_boot().
  void begin(Unit unit, double now);
  // Ends the open unit, if any.
  void end(Unit unit, double now);
  // Records the duration of a save, from its request to its commit.
  void note_save(double seconds);
  // Whether a save is being written now; the last save would have to wait for it.
  void note_saving(bool is_saving) { is_saving_ = is_saving; }

  // Call while nothing can be saved yet: only the limit itself counts.
  void begin_start() const;

  // Seconds before the limit from which `unit` may no longer start.
  [[nodiscard]] double margin(Unit unit) const;
  [[nodiscard]] double slowest_save() const { return measured_save_ > 0 ? measured_save_ : save_; }
  [[nodiscard]] double measured_save() const { return measured_save_; }
  [[nodiscard]] const std::optional<SessionLimit>& limit() const { return limit_; }

 private:
  static constexpr size_t kUnits = 4;

  [[nodiscard]] double longest(Unit unit) const { return longest_[static_cast<size_t>(unit)]; }

  std::optional<SessionLimit> limit_;
  std::array<double, kUnits> longest_ = {};  // decays, so that a single pause is forgotten
  std::array<double, kUnits> begun_ = {-1, -1, -1, -1};
  double save_ = 0.0;  // expected; measured_save_ replaces it
  double measured_save_ = 0.0;
  double copies_ = 0.0;
  bool is_saving_ = false;
};

}  // namespace finetune
