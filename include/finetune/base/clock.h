// SPDX-License-Identifier: MIT
#pragma once

#include <condition_variable>
#include <mutex>

namespace finetune {

// The seam for waiting, so that tests of what takes minutes take none. Safe to call from several
// threads.
class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual double now() = 0;  // seconds, never decreasing
  // Waits until `wake` is notified or the number of seconds has passed. May return early, as
  // condition variables do. Requires: `lock` is locked.
  virtual void wait(std::unique_lock<std::mutex>& lock, std::condition_variable& wake,
                    double seconds) = 0;
  void sleep(double seconds);

  // The machine's own.
  static Clock& steady();
};

}  // namespace finetune
