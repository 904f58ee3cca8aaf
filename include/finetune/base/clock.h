// SPDX-License-Identifier: MIT
#pragma once

#include <condition_variable>
#include <mutex>

namespace finetune {

// An interface for time and waiting, so that tests of long waits are fast. Thread-safe.
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
