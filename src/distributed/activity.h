// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>

namespace finetune {

// What the threads that beat for a process can see of its work. Their beats alone would go on where
// the main thread hangs: in a file system that does not answer, or for a lock that nobody opens.
struct Activity {
  double processor_seconds = 0.0;  // of all threads
  int64_t switches = 0;            // how often the main thread gave up a processor, or lost it
  bool is_in_meeting = false;      // waits for other processes, which may rightly take long

  [[nodiscard]] static Activity of_this_process();
};

// Counts the meetings that this process is in.
class MeetingScope {
 public:
  MeetingScope();
  ~MeetingScope();
  MeetingScope(const MeetingScope&) = delete;
  MeetingScope& operator=(const MeetingScope&) = delete;
};

// Finds a process that does nothing: for `patience` its main thread was not switched once, all
// threads together used less than 2 % of a processor, and it was in no meeting. Who sleeps and
// looks again is switched; who waits for a thread that works uses that one's time. One thread.
class IdleWatch {
 public:
  using Clock = std::chrono::steady_clock;

  explicit IdleWatch(std::chrono::milliseconds patience) : patience_(patience) {}

  // To be asked at least every ten seconds: after a longer pause the process itself was stopped,
  // and the count begins anew.
  [[nodiscard]] bool is_idle(const Activity& activity, Clock::time_point now);

 private:
  std::chrono::milliseconds patience_;
  Activity last_ = {};
  Clock::time_point looked_at_ = {};
  Clock::time_point active_at_ = {};
};

}  // namespace finetune
