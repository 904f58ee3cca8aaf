// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>

namespace finetune::cli {

// Message if the system refuses further processes or threads (EAGAIN).
inline constexpr const char* kNoMoreThreads =
    "the system starts no more processes and threads for this user; raise the limit (ulimit -u, or "
    "the container's number of processes), or ask for fewer";

// Calls `work` and returns its exit code. Exceptions become a message on standard error and the
// documented exit code. `may_say` returns false if another process has printed the message.
[[nodiscard]] int exit_code_of(
    const std::function<int()>& work, const std::function<bool(const std::string&)>& may_say =
                                          [](const std::string&) { return true; });

}  // namespace finetune::cli
