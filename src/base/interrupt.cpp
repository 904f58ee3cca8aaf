// SPDX-License-Identifier: MIT
#include "finetune/base/interrupt.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <limits>
#include <mutex>

#include "finetune/base/error.h"
#include "finetune/base/forwarded_signal.h"
#include "finetune/base/stop_signals.h"
#include "finetune/base/text.h"

namespace finetune::interrupt {
namespace {

constexpr int kMoment = -1;       // stands for a session limit instead of a signal number
constexpr int kForwarded = 7514;  // marks signals sent by forward()

std::atomic<int> requested_signal{0};
// A signal to the process group arrives directly and by forward(): each way is counted separately,
// so that one request does not count twice.
std::atomic<int> direct_signals{0};
std::atomic<int> forwarded_signals{0};
static_assert(std::atomic<int>::is_always_lock_free, "the signal handler needs it");

std::atomic<bool> hangup_stops{false};

std::atomic<double> requested_moment{std::numeric_limits<double>::infinity()};
std::mutex reason_mutex;
std::string moment_reason;  // guarded by reason_mutex

extern "C" void on_signal(int number, siginfo_t* info, void* /*context*/) {
  std::atomic<int>& signals = is_forwarded(*info) ? forwarded_signals : direct_signals;
  if (number != SIGHUP && signals.fetch_add(1) > 0) ::_exit(128 + number);
  int none = 0;
  requested_signal.compare_exchange_strong(none, number);
}

void install(int flags) {
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = flags | SA_SIGINFO;
  for (const int number : {SIGTERM, SIGINT, SIGUSR1}) ::sigaction(number, &action, nullptr);
  if (hangup_stops) ::sigaction(SIGHUP, &action, nullptr);
}

}  // namespace

void install_handlers() {
  install(SA_RESTART);
  // A closed pipe or terminal must not end a run of many hours.
  ::signal(SIGPIPE, SIG_IGN);
  if (!hangup_stops) ::signal(SIGHUP, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a file above the size limit becomes a failed write
}

void stop_on_hangup() {
  hangup_stops = true;
  install(SA_RESTART);
}

std::vector<int> stop_signals() {
  std::vector<int> signals = {SIGTERM, SIGINT, SIGUSR1};
  if (hangup_stops) signals.push_back(SIGHUP);
  return signals;
}

void break_reads() { install(0); }

bool is_requested() {
  if (requested_signal.load(std::memory_order_relaxed) != 0) return true;
  if (seconds_since_boot() < requested_moment.load(std::memory_order_relaxed)) return false;
  int none = 0;
  requested_signal.compare_exchange_strong(none, kMoment);
  return true;
}

std::string signal_name() {
  switch (requested_signal.load()) {
    case 0:
      return "";
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGHUP:
      return "SIGHUP";
    case kMoment: {
      const std::lock_guard lock(reason_mutex);
      return moment_reason;
    }
    default:
      return format_text("signal {}", requested_signal.load());
  }
}

void throw_if_requested(const std::string& phase) {
  if (is_requested()) throw Interrupted(phase);
}

void request_at(double moment, const std::string& reason) {
  const std::lock_guard lock(reason_mutex);
  moment_reason = reason;
  requested_moment.store(moment);
}

bool is_moment_reached() { return requested_signal.load() == kMoment; }

double seconds_since_boot() {
  timespec now = {};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

bool is_forwarded(const siginfo_t& info) {
  return info.si_code == SI_QUEUE && info.si_value.sival_int == kForwarded;
}

void forward(pid_t process, int signal_number) {
  ::sigqueue(process, signal_number, {.sival_int = kForwarded});
}

void request(int signal_number) {
  direct_signals.fetch_add(1);
  requested_signal.store(signal_number);
}

void reset() {
  requested_signal.store(0);
  direct_signals.store(0);
  forwarded_signals.store(0);
  requested_moment.store(std::numeric_limits<double>::infinity());
  if (hangup_stops.exchange(false)) ::signal(SIGHUP, SIG_IGN);
}

}  // namespace finetune::interrupt
