// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "train/session/training_run.h"

namespace finetune {

// Measures a session while it trains: for its time limit (SessionClock), its cost, the displayed
// speed and RunState::seconds. Owns RunState::session.
class SessionWatch {
 public:
  explicit SessionWatch(TrainingRun& run) : run_(run) {}

  // Training starts or resumes in this session. Where a bar or JSON lines show it, or the run is
  // long, measures for a tenth of a second how fast the device multiplies matrices. `flos`: roughly
  // what is left to compute.
  void start(double flos);
  // What a save of this many bytes and a step are expected to take, until they are measured.
  void expect_times(uint64_t checkpoint_bytes);

  // Starts a unit of work, and requests a stop if it may not fit into the session. `is_saving`: a
  // save is being written.
  void begin(SessionClock::Unit unit, bool is_saving);
  void end(SessionClock::Unit unit);
  void note_save(double seconds);

  void count_step(int64_t tokens);  // after RunState::step was increased
  [[nodiscard]] double tokens_per_second() const;
  [[nodiscard]] double seconds() const;  // since start()
  // Returns the model's FLOP/s since start() (6 for each weight and token) as a fraction of the
  // measured speed; nullopt if it was not measured, or before the first step.
  [[nodiscard]] std::optional<double> ceiling_share() const;
  // The most memory that the process or its device had, read at most every half second: on the CPU
  // the kernel formats a page of text for it, which takes longer than a small step's arithmetic.
  [[nodiscard]] int64_t peak_memory_mib();
  // Adds the time since the last call to RunState::seconds.
  void count_seconds();
  // Does not count the time since the last call: a rollback undid it.
  void skip_seconds();

  // Writes RunState::session for the next session.
  void keep();
  [[nodiscard]] std::optional<std::string> cost_text() const;
  [[nodiscard]] std::optional<double> seconds_left() const;  // of training; nullopt if unknown
  [[nodiscard]] std::optional<double> session_seconds_left() const;  // until the session's limit
  // Logs the progress of a session that ends early.
  void log_progress() const;

  // Adds the use of buckets in all sessions as "bucket", if there is any.
  void add_bucket(nlohmann::ordered_json& to) const;

 private:
  [[nodiscard]] SessionProgress progress() const;
  [[nodiscard]] double measure_ceiling() const;

  TrainingRun& run_;
  double start_ = 0.0;
  double counted_until_ = 0.0;  // up to here in RunState::seconds
  int64_t first_step_ = 0;
  int64_t tokens_ = 0;
  double slow_seconds_ = 0.0;  // of the first kSlowSteps steps; 0: not yet known
  double first_flos_ = 0.0;
  double ceiling_ = 0.0;  // FLOP/s of all processes; 0: not measured
  int64_t peak_mib_ = 0;
  double peak_read_ = 0.0;                // when; 0: not yet
  nlohmann::ordered_json bucket_before_;  // use of buckets in earlier sessions
};

}  // namespace finetune
