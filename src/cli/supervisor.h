// SPDX-License-Identifier: MIT
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "cli/hook.h"

namespace finetune::cli {

// What a training says of itself, in memory that outlives its process.
struct SharedReport {
  std::atomic<int64_t> step{-1};  // newest; below 0: none is known
  std::atomic<bool> already_finished{false};
};

struct Supervision {
  Hooks hooks = {};
  std::string output_dir = {};
};

// Does `work` in a child process, waits for it and runs the one hook that belongs to its end, once,
// when the child is gone: also where it crashed or was killed. No hook where the run was finished
// already. Returns the child's exit code, 128 + the number of the signal that ended it.
//
// This process does nothing else and stays small. SIGTERM, SIGINT and SIGUSR1 are passed on, once
// (interrupt::forward); no signal but SIGKILL ends it, and where even that does, the child goes on
// and runs the hook itself. Requires: no threads yet, nothing of libtorch was used.
[[nodiscard]] int supervise(const Supervision& what, const std::function<int(SharedReport&)>& work);

}  // namespace finetune::cli
