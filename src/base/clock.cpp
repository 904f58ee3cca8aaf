// SPDX-License-Identifier: MIT
#include "finetune/base/clock.h"

#include <chrono>

namespace finetune {
namespace {

class SteadyClock final : public Clock {
 public:
  double now() override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  void wait(std::unique_lock<std::mutex>& lock, std::condition_variable& wake,
            double seconds) override {
    wake.wait_for(lock, std::chrono::duration<double>(seconds));
  }
};

}  // namespace

void Clock::sleep(double seconds) {
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  const double end = now() + seconds;
  for (double left = seconds; left > 0; left = end - now()) wait(lock, never, left);
}

Clock& Clock::steady() {
  static SteadyClock instance;
  return instance;
}

}  // namespace finetune
