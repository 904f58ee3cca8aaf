// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>

namespace finetune {

// Returns seconds of a monotonic clock; only differences have a meaning.
inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace finetune
