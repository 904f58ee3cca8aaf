// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

namespace finetune {

// Decides when to save in addition to the schedule: every save_minutes, or, if unset, every minute
// as long as saving costs at most 1 % of the time (CheckFreq, FAST 2021, tunes its interval in the
// same way). Seconds are those of now_seconds().
class SaveClock {
 public:
  struct Options {
    std::optional<double> minutes = std::nullopt;  // 0: never
    uint64_t checkpoint_bytes = 0;                 // for an estimate of the first save's cost
  };

  SaveClock(const Options& options, double now);

  // A save of any kind began; this restarts the interval.
  void began(double now) { last_ = now; }
  // Records the time that the save took from training, and the time of writing.
  void cost(double seconds, double write_seconds);

  [[nodiscard]] bool is_due(double now) const;
  [[nodiscard]] double interval_seconds() const;

 private:
  std::optional<double> minutes_;
  double last_;
  double cost_;   // seconds of training per save
  double write_;  // seconds of writing per save
  bool is_measured_ = false;
};

}  // namespace finetune
