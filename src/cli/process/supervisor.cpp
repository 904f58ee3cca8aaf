// SPDX-License-Identifier: MIT
#include "cli/process/supervisor.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <new>
#include <vector>

#include "cli/process/outcome.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/base/stop_signals.h"
#include "finetune/base/text.h"

namespace finetune::cli {
namespace {

SharedReport& make_shared_report() {
  void* memory = ::mmap(nullptr, sizeof(SharedReport), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(ErrorKind::kIo,
                std::string("no memory to share with the training: ") + std::strerror(errno));
  }
  return *new (memory) SharedReport;  // lives as long as the process
}

// Returns all signals that could end the supervisor, except those of job control, which must stop
// both processes.
sigset_t held_signals() {
  sigset_t set;
  sigfillset(&set);
  for (const int number : {SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT, SIGSEGV, SIGBUS, SIGFPE, SIGILL,
                           SIGABRT, SIGTRAP, SIGSYS}) {
    sigdelset(&set, number);
  }
  return set;
}

int exit_code_of_status(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void end_with_hook(const Supervision& what, const SharedReport& report, int code) {
  if (report.already_finished) return;
  const int64_t step = report.step;
  run_hook(what.hooks, {.exit_code = code,
                        .output_dir = what.output_dir,
                        .step = step >= 0 ? std::optional<int64_t>(step) : std::nullopt});
}

[[noreturn]] void be_child(const Supervision& what, SharedReport& report, pid_t supervisor,
                           const std::function<int(SharedReport&)>& work) {
  const int code = exit_code_of([&] { return work(report); });
  std::cout.flush();
  // The supervisor is gone, so this process runs the hook.
  if (::getppid() != supervisor) end_with_hook(what, report, code);
  // Everything is saved: skip the libraries' destructors, which could still fail.
  ::_exit(code);
}

int wait_for(pid_t child) {
  sigset_t awaited;
  sigemptyset(&awaited);
  const std::vector<int> stops = interrupt::stop_signals();
  for (const int number : stops) sigaddset(&awaited, number);
  for (const int number : {SIGCHLD, SIGQUIT}) sigaddset(&awaited, number);
  while (true) {
    int status = 0;
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) return exit_code_of_status(status);
    if (ended < 0 && errno != EINTR) {
      throw Error(ErrorKind::kIo,
                  std::string("cannot wait for the training: ") + std::strerror(errno));
    }
    const int number = ::sigwaitinfo(&awaited, nullptr);
    if (std::ranges::find(stops, number) != stops.end()) {
      interrupt::forward(child, number);
    } else if (number == SIGQUIT) {
      ::kill(child, SIGQUIT);
    }
  }
}

// Reports stop signals that arrived while the hook ran, when the training had already ended.
void note_late_signals() {
  sigset_t pending;
  ::sigpending(&pending);
  for (const int number : interrupt::stop_signals()) {
    if (sigismember(&pending, number) == 1) {
      log::info(std::string(::strsignal(number)) +
                " arrived after the training had ended: on_finish_command is not run again");
    }
  }
}

}  // namespace

int supervise(const Supervision& what, const std::function<int(SharedReport&)>& work) {
  SharedReport& report = make_shared_report();
  const sigset_t held = held_signals();
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &held, &before);
  ::signal(SIGCHLD, SIG_DFL);  // if inherited as ignored, the child's status would be lost
  const pid_t supervisor = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) {
    const int problem = errno;
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    throw Error(ErrorKind::kIo,
                std::string("cannot start the process that trains: ") + std::strerror(problem));
  }
  if (child == 0) {
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    be_child(what, report, supervisor, work);
  }
  const int code = wait_for(child);
  if (code > 128) {
    log::error(
        format_text("the training was ended by signal {} ({}); what was saved before is kept: run "
                    "the same command again to resume",
                    code - 128, ::strsignal(code - 128)));
  }
  end_with_hook(what, report, code);
  note_late_signals();
  return code;
}

}  // namespace finetune::cli
