// SPDX-License-Identifier: MIT
#include "cli/process/hook.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "finetune/base/child_process.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"

namespace finetune::cli {
namespace {

constexpr double kGraceSeconds = 10;

struct Hook {
  const char* key;
  const std::vector<std::string>& command;
};

std::optional<Hook> hook_for(const Hooks& hooks, int exit_code) {
  switch (exit_code) {
    case kExitFinished:
    case kExitCheckpointsFailed:
      return Hook{"on_finish_command", hooks.on_finish};
    case kExitStoppedEarly:
      return Hook{"on_interrupt_command", hooks.on_interrupt};
    case kExitBusy:
      return std::nullopt;
    default:
      return Hook{"on_failure_command", hooks.on_failure};
  }
}

std::string shown(const std::vector<std::string>& command) {
  std::string text;
  for (const std::string& word : command) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::vector<std::string> environment_of(const Ending& ending) {
  std::vector<std::string> list;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (text.starts_with("FINETUNE_EXIT_CODE=") || text.starts_with("FINETUNE_OUTPUT_DIR=") ||
        text.starts_with("FINETUNE_STEP=")) {
      continue;
    }
    list.push_back(text);
  }
  list.push_back(format_text("FINETUNE_EXIT_CODE={}", ending.exit_code));
  list.push_back("FINETUNE_OUTPUT_DIR=" + ending.output_dir);
  if (ending.step) list.push_back(format_text("FINETUNE_STEP={}", *ending.step));
  return list;
}

// Returns 0, or the errno of the failure.
int start(const std::vector<std::string>& command, const Ending& ending, pid_t& process) {
  // SIGHUP and SIGPIPE stay ignored: the command must also work without a terminal. With on_sighup:
  // stop, SIGHUP has a handler in this process, which the command would not inherit.
  ::signal(SIGHUP, SIG_IGN);
  return start_program({.words = command,
                        .streams = {kNullStream, STDERR_FILENO, kInheritedStream},
                        .environment = environment_of(ending),
                        .group = ChildGroup::kOwnSession},
                       process);
}

// Returns false if the process did not end in time.
bool ends_within(pid_t process, double seconds, int& status) {
  constexpr timespec kPause = {.tv_sec = 0, .tv_nsec = 20'000'000};
  const double end = interrupt::seconds_since_boot() + seconds;
  while (true) {
    if (has_ended(process, status)) return true;
    if (interrupt::seconds_since_boot() >= end) return false;
    ::nanosleep(&kPause, nullptr);
  }
}

// Also ends the command's child processes: it has its own session and process group.
void end_process(pid_t process, int& status) {
  ::kill(-process, SIGTERM);
  const bool ended = ends_within(process, kGraceSeconds, status);
  ::kill(-process, SIGKILL);
  if (!ended) (void)ends_within(process, kGraceSeconds, status);
}

bool is_program(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

// Searches like execvp.
bool can_be_found(const std::string& program) {
  if (program.find('/') != std::string::npos) return is_program(program);
  const char* path = std::getenv("PATH");
  const std::string folders = path != nullptr ? path : "/bin:/usr/bin";
  for (size_t start = 0; start <= folders.size();) {
    const size_t end = std::min(folders.find(':', start), folders.size());
    const std::string folder = folders.substr(start, end - start);
    if (is_program((folder.empty() ? "." : folder) + "/" + program)) return true;
    start = end + 1;
  }
  return false;
}

}  // namespace

void run_hook(const Hooks& hooks, const Ending& ending, double limit_seconds) {
  const std::optional<Hook> hook = hook_for(hooks, ending.exit_code);
  if (!hook || hook->command.empty()) return;
  const std::string name = hook->key;
  log::info(name + ": " + shown(hook->command));
  pid_t process = 0;
  if (const int problem = start(hook->command, ending, process); problem != 0) {
    log::warning(name + ": '" + hook->command[0] + "' could not be started (" +
                 std::strerror(problem) + ")");
    return;
  }
  int status = 0;
  if (!ends_within(process, limit_seconds, status)) {
    end_process(process, status);
    log::warning(format_text("{} took longer than {} s and was ended", name,
                             static_cast<int64_t>(limit_seconds)));
    return;
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  log::warning(name + " ended with " +
               (WIFEXITED(status) ? format_text("exit code {}", WEXITSTATUS(status))
                                  : format_text("signal {}", WTERMSIG(status))) +
               "; the training's own exit code stays");
}

void check_hook(const std::string& key, const std::vector<std::string>& command,
                const std::string& where) {
  if (command.empty() || can_be_found(command[0])) return;
  throw Error(ErrorKind::kConfig,
              where + ": " + key + ": there is no program '" + command[0] + "'" +
                  (command[0].find('/') == std::string::npos ? " on PATH" : "") +
                  "; it is run without a shell: write one word an item, as in [\"bash\", \"-c\", "
                  "\"...\"]");
}

}  // namespace finetune::cli
