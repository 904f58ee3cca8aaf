// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <functional>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace finetune {

// Waits until a device has done what was begun there; behind it, what the caller's stream is given
// sees the result. Throws what the work failed with, and c10::DistBackendError where it takes
// longer than the limit or `is_over` says that another process is gone: the device may still be
// waiting for that one then.
void await_work(c10d::Work& work, std::chrono::milliseconds limit,
                const std::function<bool()>& is_over);

}  // namespace finetune
