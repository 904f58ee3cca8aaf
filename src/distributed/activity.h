// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>

namespace finetune {

// The activity of a process as seen by its heartbeat thread. Heartbeats alone would continue while
// the main thread hangs in a file system that does not respond, or in a deadlock.
struct Activity {
  double processor_seconds = 0.0;  // of all threads
  int64_t switches = 0;            // voluntary and involuntary context switches of the main thread
  bool is_in_collective = false;   // waits for other ranks, which may legitimately take long

  [[nodiscard]] static Activity of_this_process();
};

// Counts the collectives that this process is in.
class CollectiveScope {
 public:
  CollectiveScope();
  ~CollectiveScope();
  CollectiveScope(const CollectiveScope&) = delete;
  CollectiveScope& operator=(const CollectiveScope&) = delete;
};

// Detects a hung process: for the whole timeout its main thread had no context switch, all threads
// together used less than 2 % of a processor, and it was in no collective. A thread that polls has
// context switches; one that waits for a working thread benefits from that thread's CPU time.
// Single-threaded.
class IdleWatch {
 public:
  using Clock = std::chrono::steady_clock;

  explicit IdleWatch(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  // Call it at least every ten seconds: a longer pause means that this process itself was
  // suspended, and restarts the measurement.
  [[nodiscard]] bool is_idle(const Activity& activity, Clock::time_point now);

 private:
  std::chrono::milliseconds timeout_;
  Activity last_ = {};
  Clock::time_point looked_at_ = {};
  Clock::time_point active_at_ = {};
};

}  // namespace finetune
