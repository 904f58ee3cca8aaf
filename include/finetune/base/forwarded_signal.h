// SPDX-License-Identifier: MIT
#pragma once

#include <signal.h>

namespace finetune::interrupt {

// Whether another process of this program forwarded this signal with forward(). For a process that
// waits for signals itself.
[[nodiscard]] bool is_forwarded(const siginfo_t& info);

}  // namespace finetune::interrupt
