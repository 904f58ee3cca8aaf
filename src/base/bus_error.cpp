// SPDX-License-Identifier: MIT
#include "finetune/base/bus_error.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string_view>

#include "finetune/base/error.h"

namespace finetune {

// The signal handler walks the list of ranges, so they are never freed but reused.
struct BusErrorGuard::Range {
  std::atomic<uintptr_t> begin = 0;
  std::atomic<uintptr_t> end = 0;  // 0: free
  Range* next = nullptr;
};

namespace {

std::atomic<void*> newest = nullptr;  // Range
struct sigaction previous_action = {};

}  // namespace

void note_bus_error(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const auto* range = static_cast<BusErrorGuard::Range*>(newest.load()); range != nullptr;
       range = range->next) {
    if (at < range->begin || at >= range->end) continue;
    constexpr std::string_view kMessage =
        "error: a file in cache_dir was truncated while it was in use, or its disk cannot be read; "
        "run the same command again, and what is missing is made again\n";
    [[maybe_unused]] const ssize_t written =
        ::write(STDERR_FILENO, kMessage.data(), kMessage.size());
    ::_exit(kExitFailed);
  }
}

namespace {

void on_bus_error(int, siginfo_t* info, void*) {
  note_bus_error(info->si_addr);
  ::sigaction(SIGBUS, &previous_action, nullptr);  // the access is repeated and then handled by it
}

void install() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGBUS, &action, &previous_action);
  });
}

}  // namespace

BusErrorGuard::BusErrorGuard(const void* begin, size_t size) {
  static std::mutex mutex;
  install();
  const std::lock_guard lock(mutex);
  auto* range = static_cast<Range*>(newest.load());
  while (range != nullptr && range->end != 0) range = range->next;
  if (range == nullptr) {
    range = new Range;
    range->next = static_cast<Range*>(newest.load());
    newest = range;
  }
  range->begin = reinterpret_cast<uintptr_t>(begin);
  range->end = range->begin + size;
  range_ = range;
}

BusErrorGuard::~BusErrorGuard() { range_->end = 0; }

}  // namespace finetune
