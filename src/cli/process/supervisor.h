// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "cli/process/hook.h"

namespace finetune::cli {

// The training's report to the supervisor, in memory that outlives the training process.
struct SharedReport {
  std::atomic<int64_t> step{-1};  // newest; below 0: unknown
  std::atomic<bool> already_finished{false};
};

struct Supervision {
  Hooks hooks = {};
  std::string output_dir = {};
};

// Runs `work` in a child process, waits for it and runs the hook for its result once, even if the
// child crashed or was killed. No hook runs if the run was already finished. Returns the child's
// exit code, or 128 + the number of the signal that ended it.
//
// This process does nothing else and stays small. It forwards SIGTERM, SIGINT and SIGUSR1 once
// (interrupt::forward). Only SIGKILL ends it; the child then continues and runs the hook itself.
// Requires: no threads yet, nothing of libtorch was used.
[[nodiscard]] int supervise(const Supervision& what, const std::function<int(SharedReport&)>& work);

}  // namespace finetune::cli
