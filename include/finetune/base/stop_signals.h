// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

namespace finetune::interrupt {

// Makes SIGHUP ask for the same orderly stop; install_handlers() ignores it. A terminal that closes
// may send it several times (kernel and shell), so a repeated SIGHUP never leaves at once.
void stop_on_hangup();

// The signals that ask for a stop, for processes that pass them on: SIGTERM, SIGINT, SIGUSR1, and
// SIGHUP after stop_on_hangup().
[[nodiscard]] std::vector<int> stop_signals();

}  // namespace finetune::interrupt
