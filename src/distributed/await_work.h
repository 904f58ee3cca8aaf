// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <functional>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace finetune {

// Waits until a device has completed its work; later work of the caller's stream sees the result.
// Throws the work's error, and c10::DistBackendError after the time limit or if `is_over` reports a
// dead rank: the device may then still wait for that rank.
void await_work(c10d::Work& work, std::chrono::milliseconds limit,
                const std::function<bool()>& is_over);

}  // namespace finetune
