// SPDX-License-Identifier: MIT
// Runs a test and appends a line on it to a file: "NAME SECONDS CPU_SECONDS CODE", of the test and
// of its descendants that were waited for. scripts/test makes a table of these lines.
//
//   timed FILE NAME COMMAND WORD...
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>

namespace {

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const auto start = std::chrono::steady_clock::now();
  const pid_t test = ::fork();
  if (test < 0) return 126;
  if (test == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // where ctest ends a test at its limit
    ::execvp(argv[3], argv + 3);
    std::perror(argv[3]);
    ::_exit(127);
  }
  int status = 0;
  rusage usage = {};
  if (::wait4(test, &status, 0, &usage) < 0) return 126;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  const double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::array<char, 512> line;
  const int size = std::snprintf(line.data(), line.size(), "%s %.3f %.3f %d\n", argv[2], wall,
                                 seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime), code);
  const int file = ::open(argv[1], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file >= 0 && size > 0 && size < static_cast<int>(line.size())) {
    (void)!::write(file, line.data(), static_cast<size_t>(size));  // one call: no line is mixed
  }
  if (WIFSIGNALED(status)) {  // ctest says which
    ::signal(WTERMSIG(status), SIG_DFL);
    ::raise(WTERMSIG(status));
  }
  return code;
}
