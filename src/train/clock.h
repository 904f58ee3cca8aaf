// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>

namespace finetune {

// Seconds on a clock that never jumps; for differences only.
inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace finetune
