// SPDX-License-Identifier: MIT
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdint>
#include <iostream>
#include <sstream>

#include "cli/process/command_line.h"
#include "cli/process/commands.h"
#include "finetune/base/clock.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/runs/run_facts.h"

namespace finetune::cli {
namespace {

constexpr double kWatchSeconds = 2;
constexpr int kExitRunning = 6;

constexpr const char* kStatusHelp =
    R"(usage: finetune status OUTPUT_DIR [--watch] [--json]

Shows whether a run is running and where, its step, loss, last evaluation, speed,
time left, checkpoints, mirror and last error. Only reads; the run is not disturbed.
OUTPUT_DIR may be a mirror in a bucket (s3://BUCKET/FOLDER).

  --watch   repeat every 2 seconds until the run ends (Ctrl-C stops watching)
  --json    one JSON object; with --watch one a line

Exit codes: 0 finished; 6 running; 75 stopped, failed or killed: the same training
command resumes it; 3 there are checkpoints, but none is valid; 2 no run in this folder.
)";

int status_code(const RunStatus& status) {
  if (status.is_running()) return kExitRunning;
  if (status.state == "finished") return kExitFinished;
  return status.state == "no_valid_checkpoint" ? kExitNoValidCheckpoint : kExitStoppedEarly;
}

// Escapes everything but ASCII: a name in it may contain any byte.
std::string json_text(const RunStatus& status, int indent) {
  return to_json(status).dump(indent, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

// Breaks the lines of status_text() between words where the terminal would break them anywhere;
// values continue in their column. Counts bytes: a line of other text than ASCII breaks earlier.
std::string wrapped(const std::string& text, size_t columns) {
  constexpr size_t kValueColumn = 15;
  std::string result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    while (line.size() > columns && columns > 2 * kValueColumn) {
      const size_t space = line.rfind(' ', columns);
      if (space == std::string::npos || space <= kValueColumn) break;
      result += line.substr(0, space) + "\n";
      line = std::string(kValueColumn, ' ') + line.substr(space + 1);
    }
    result += line + "\n";
  }
  return result;
}

size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : SIZE_MAX;
}

// Prints the status repeatedly; on a terminal, overwrites the previous text.
int watch(const std::string& folder, bool as_json) {
  const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  std::string before;
  while (true) {
    const RunStatus status = status_of(read_run_folder(folder));
    const std::string text = as_json ? json_text(status, -1) : status_text(status);
    if (is_terminal && !as_json) {
      std::cout << "\x1b[H\x1b[2J" << wrapped(text, terminal_columns()) << std::flush;
    } else if (text != before) {
      std::cout << text << std::flush;
    }
    before = text;
    if (status_code(status) != kExitRunning) return status_code(status);
    for (double waited = 0; waited < kWatchSeconds; waited += 0.1) {
      if (interrupt::is_requested()) return kExitRunning;
      Clock::steady().sleep(0.1);
    }
  }
}

}  // namespace

int status_command(const Arguments& arguments) {
  CommandLine line("status", kStatusHelp);
  bool watches = false;
  bool as_json = false;
  line.flag("--watch", watches);
  line.flag("--json", as_json);
  if (!line.parse(arguments)) return kExitFinished;
  if (line.rest().size() != 1 || line.rest()[0].starts_with("-")) {
    throw Error(ErrorKind::kUsage, "finetune status takes one folder: the run's output_dir");
  }
  const std::string& folder = line.rest()[0];
  if (watches) return watch(folder, as_json);
  const RunStatus status = status_of(read_run_folder(folder));
  std::cout << (as_json ? json_text(status, 2) : wrapped(status_text(status), terminal_columns()))
            << std::flush;
  return status_code(status);
}

}  // namespace finetune::cli
