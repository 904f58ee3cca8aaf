// SPDX-License-Identifier: MIT
#include "finetune/base/clock.h"

#include <array>
#include <chrono>
#include <ctime>

namespace finetune {
namespace {

using Calendar = std::tm* (*)(const std::time_t*, std::tm*);

std::string time_text(double unix_seconds, const char* format, Calendar calendar) {
  if (!(unix_seconds > -1e15 && unix_seconds < 1e15)) return "";
  const auto time = static_cast<std::time_t>(unix_seconds);
  std::tm fields = {};
  std::array<char, 64> text = {};
  if (calendar(&time, &fields) == nullptr) return "";
  return {text.data(), std::strftime(text.data(), text.size(), format, &fields)};
}

class SteadyClock final : public Clock {
 public:
  double now() override { return now_seconds(); }
  void wait(std::unique_lock<std::mutex>& lock, std::condition_variable& wake,
            double seconds) override {
    wake.wait_for(lock, std::chrono::duration<double>(seconds));
  }
};

}  // namespace

double unix_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) /
         1000.0;
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string local_time_text(double unix_seconds, const char* format) {
  return time_text(unix_seconds, format, ::localtime_r);
}

std::string utc_time_text(double unix_seconds, const char* format) {
  return time_text(unix_seconds, format, ::gmtime_r);
}

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
