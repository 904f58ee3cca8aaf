// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <utility>

#include "finetune/base/clock.h"

namespace finetune::testing {

// A clock that advances only when a thread waits, and then at once. `on_wait` is called for each
// wait, on the waiting thread.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(std::function<void(double now)> on_wait = {})
      : on_wait_(std::move(on_wait)) {}

  double now() override {
    const std::lock_guard guard(mutex_);
    return now_;
  }
  void wait(std::unique_lock<std::mutex>& lock, std::condition_variable& wake,
            double seconds) override {
    // Lets other threads run, as a real wait would.
    wake.wait_for(lock, std::chrono::microseconds(100));
    double now = 0;
    {
      const std::lock_guard guard(mutex_);
      now = now_ += seconds;
    }
    if (on_wait_) on_wait_(now);
  }

 private:
  std::mutex mutex_;
  double now_ = 0;
  std::function<void(double now)> on_wait_;
};

}  // namespace finetune::testing
