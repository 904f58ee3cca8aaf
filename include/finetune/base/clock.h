// SPDX-License-Identifier: MIT
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>

namespace finetune {

// Seconds since 1970 by the system's clock, to a millisecond. It may be set at any time: for
// records and display, never for order or differences within a process.
[[nodiscard]] double unix_seconds();
// Seconds on a clock that never jumps; for differences only.
[[nodiscard]] double now_seconds();

// Such a time as strftime's `format` says, in the time zone of this process or in UTC; empty where
// it is beyond what the calendar has.
[[nodiscard]] std::string local_time_text(double unix_seconds,
                                          const char* format = "%Y-%m-%d %H:%M:%S");
[[nodiscard]] std::string utc_time_text(double unix_seconds,
                                        const char* format = "%Y-%m-%d %H:%M:%S");

// The seam for waiting, so that tests of what takes minutes take none. Safe to call from several
// threads.
class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual double now() = 0;  // seconds, never decreasing
  // Waits until `wake` is notified or `seconds` have passed. May return early, like a condition
  // variable. Requires: `lock` is locked.
  virtual void wait(std::unique_lock<std::mutex>& lock, std::condition_variable& wake,
                    double seconds) = 0;
  void sleep(double seconds);

  // The machine's clock.
  static Clock& steady();
};

}  // namespace finetune
