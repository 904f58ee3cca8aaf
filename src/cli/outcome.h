// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>

namespace finetune::cli {

// Where the system gives this user no more of them (EAGAIN).
inline constexpr const char* kNoMoreThreads =
    "the system starts no more processes and threads for this user; raise the limit (ulimit -u, or "
    "the container's number of processes), or ask for fewer";

// Does the work and returns its exit code. What it throws becomes a message on standard error and
// the exit code that the contract has for it. `may_say`: false where another process has said it.
[[nodiscard]] int exit_code_of(
    const std::function<int()>& work, const std::function<bool(const std::string&)>& may_say =
                                          [](const std::string&) { return true; });

}  // namespace finetune::cli
