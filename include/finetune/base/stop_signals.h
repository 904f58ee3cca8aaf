// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

namespace finetune::interrupt {

// Makes SIGHUP request the same orderly stop; install_handlers() ignores it. A closing terminal may
// send it several times (kernel and shell), so a repeated SIGHUP never exits at once.
void stop_on_hangup();

// Returns the signals that request a stop, for processes that forward them: SIGTERM, SIGINT,
// SIGUSR1, and after stop_on_hangup() SIGHUP.
[[nodiscard]] std::vector<int> stop_signals();

}  // namespace finetune::interrupt
