// SPDX-License-Identifier: MIT
#include "distributed/activity.h"

#include <unistd.h>

#include <atomic>
#include <ctime>
#include <fstream>
#include <string>

namespace finetune {
namespace {

constexpr double kIdleShare = 0.02;
constexpr std::chrono::seconds kLongestPause{10};

std::atomic<int> collectives{0};

// Returns a different number on each call if it cannot be read, so that no process counts as idle.
int64_t main_thread_switches() {
  static std::atomic<int64_t> unread{0};
  const std::string id = std::to_string(::getpid());
  std::ifstream status("/proc/self/task/" + id + "/status");
  int64_t switches = 0;
  int found = 0;
  for (std::string word; found < 2 && status >> word;) {
    if (word != "voluntary_ctxt_switches:" && word != "nonvoluntary_ctxt_switches:") continue;
    int64_t count = 0;
    if (status >> count) switches += count;
    ++found;
  }
  return found == 2 ? switches : --unread;
}

}  // namespace

Activity Activity::of_this_process() {
  timespec time = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return {.processor_seconds =
              static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9,
          .switches = main_thread_switches(),
          .is_in_collective = collectives > 0};
}

CollectiveScope::CollectiveScope() { ++collectives; }

CollectiveScope::~CollectiveScope() { --collectives; }

bool IdleWatch::is_idle(const Activity& activity, Clock::time_point now) {
  const std::chrono::duration<double> passed = now - looked_at_;
  const bool works =
      activity.processor_seconds - last_.processor_seconds > kIdleShare * passed.count();
  if (works || activity.is_in_collective || activity.switches != last_.switches ||
      passed > kLongestPause) {
    active_at_ = now;
  }
  last_ = activity;
  looked_at_ = now;
  return now - active_at_ > timeout_;
}

}  // namespace finetune
