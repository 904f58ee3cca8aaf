// SPDX-License-Identifier: MIT
#include "finetune/base/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "finetune/base/error.h"

namespace finetune::interrupt {
namespace {

std::atomic<int> requested_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "the signal handler needs it");

extern "C" void on_signal(int number) {
  int none = 0;
  if (!requested_signal.compare_exchange_strong(none, number)) ::_exit(128 + number);
}

void install(int flags) {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = flags;
  for (const int number : {SIGTERM, SIGINT, SIGUSR1}) ::sigaction(number, &action, nullptr);
}

}  // namespace

void install_handlers() {
  install(SA_RESTART);
  // A closed pipe or a terminal that is gone must not end a run of many hours.
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGHUP, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a file that grows too large is a failed write, not the end
}

void break_reads() { install(0); }

bool is_requested() { return requested_signal.load(std::memory_order_relaxed) != 0; }

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
    default:
      return "signal " + std::to_string(requested_signal.load());
  }
}

void throw_if_requested(const std::string& phase) {
  if (is_requested()) throw Interrupted(phase);
}

void request(int signal_number) { requested_signal.store(signal_number); }
void reset() { requested_signal.store(0); }

}  // namespace finetune::interrupt
