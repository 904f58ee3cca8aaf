// SPDX-License-Identifier: MIT
#include "distributed/await_work.h"

#include <c10/util/Exception.h>

#include <string>
#include <thread>

#include "finetune/base/text.h"

namespace finetune {
namespace {

constexpr std::chrono::microseconds kLook{20};  // interval of checks for completion
constexpr std::chrono::milliseconds kLookAround{10};

}  // namespace

// Unlike Work::wait(), polls more often than once a millisecond, and also checks `is_over`.
void await_work(c10d::Work& work, std::chrono::milliseconds limit,
                const std::function<bool()>& is_over) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + limit;
  Clock::time_point look_around = Clock::now() + kLookAround;
  while (!work.isCompleted()) {
    const Clock::time_point now = Clock::now();
    if (now > end) {
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit).count();
      C10_THROW_ERROR(DistBackendError,
                      format_text("NCCL waited {} s for another process, ddp_timeout", seconds));
    }
    if (now > look_around) {
      if (is_over && is_over()) C10_THROW_ERROR(DistBackendError, "another process is gone");
      look_around = now + kLookAround;
    }
    std::this_thread::sleep_for(kLook);
  }
  if (const std::exception_ptr error = work.exception()) std::rethrow_exception(error);
  work.synchronize();
}

}  // namespace finetune
