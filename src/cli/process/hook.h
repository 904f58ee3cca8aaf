// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace finetune::cli {

// The user's commands for the end of a training. They come only from configuration and command
// line, never from files of a run.
struct Hooks {
  std::vector<std::string> on_finish = {};
  std::vector<std::string> on_interrupt = {};
  std::vector<std::string> on_failure = {};

  [[nodiscard]] bool empty() const {
    return on_finish.empty() && on_interrupt.empty() && on_failure.empty();
  }
};

// How a training ended, for the environment of its hook: FINETUNE_EXIT_CODE, FINETUNE_OUTPUT_DIR
// and, if known, FINETUNE_STEP.
struct Ending {
  int exit_code = 0;
  std::string output_dir = {};
  std::optional<int64_t> step = {};
};

// Runs the hook for the exit code once and waits for it: on_finish for 0 and 4, on_interrupt for
// 75, none for 5 (the run is alive in another process), on_failure for all others. No shell;
// standard input is empty, standard output goes to standard error; the command has its own session,
// so that a closing terminal and its keys do not affect it. A command that runs longer than
// `limit_seconds` is terminated (SIGTERM, 10 s later SIGKILL). A failure is a warning and does not
// change the training's exit code.
void run_hook(const Hooks& hooks, const Ending& ending, double limit_seconds = 600);

// Throws Error(kConfig) if the program of a command cannot be found: at startup, not after hours.
// `where` is the position of the key.
void check_hook(const std::string& key, const std::vector<std::string>& command,
                const std::string& where);

}  // namespace finetune::cli
