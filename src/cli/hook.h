// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace finetune::cli {

// The user's commands for the end of a training. They come from configuration and command line
// only, never from a file of a run.
struct Hooks {
  std::vector<std::string> on_finish = {};
  std::vector<std::string> on_interrupt = {};
  std::vector<std::string> on_failure = {};

  [[nodiscard]] bool empty() const {
    return on_finish.empty() && on_interrupt.empty() && on_failure.empty();
  }
};

// How a training ended, for the environment of its hook: FINETUNE_EXIT_CODE, FINETUNE_OUTPUT_DIR
// and, where one is known, FINETUNE_STEP.
struct Ending {
  int exit_code = 0;
  std::string output_dir = {};
  std::optional<int64_t> step = {};
};

// Runs the command of `hooks` that belongs to the exit code, once, and waits for it: finished (0,
// 4), stopped early (75), and every other code as failed; none for 5, because then the run is alive
// in another process. No shell; standard input is empty, standard output goes to standard error; in
// its own session, so that closing the terminal and its keys do not reach it. A command that runs
// longer than `limit_seconds` is ended (SIGTERM, 10 s later SIGKILL). A failure is a warning: the
// training's exit code stays.
void run_hook(const Hooks& hooks, const Ending& ending, double limit_seconds = 600);

// Throws Error(kConfig) where the program of a command cannot be found: at the start, not after
// hours. `where` is the place of the key.
void check_hook(const std::string& key, const std::vector<std::string>& command,
                const std::string& where);

}  // namespace finetune::cli
