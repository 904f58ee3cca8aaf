// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>

namespace finetune {

// When to save in addition to the schedule: every save_minutes, or, if unset, every minute, as far
// as that costs at most 1 % of the time (CheckFreq, FAST 2021, tunes its interval in the same way).
// Seconds are those of now_seconds().
class SaveClock {
 public:
  struct Options {
    std::optional<double> minutes = std::nullopt;  // 0: never
    uint64_t checkpoint_bytes = 0;                 // what the first save's cost is guessed from
  };

  SaveClock(const Options& options, double now);

  // A save of any kind began; a scheduled one restarts the interval.
  void began(double now) { last_ = now; }
  // What it cost training, and how long the disk was busy.
  void cost(double seconds, double write_seconds);

  [[nodiscard]] bool is_due(double now) const;
  [[nodiscard]] double interval_seconds() const;

 private:
  std::optional<double> minutes_;
  double last_;
  double cost_;   // of one save
  double write_;  // how long one takes
  bool is_measured_ = false;
};

}  // namespace finetune
