// SPDX-License-Identifier: MIT
#include "finetune/base/python_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

namespace finetune {
namespace {

using ::testing::ElementsAre;

// Sets or unsets FINETUNE_PYTHON as long as it lives.
class NamedPython {
 public:
  explicit NamedPython(const char* value) {
    if (const char* before = std::getenv("FINETUNE_PYTHON")) before_ = before;
    value != nullptr ? ::setenv("FINETUNE_PYTHON", value, 1) : ::unsetenv("FINETUNE_PYTHON");
  }
  ~NamedPython() {
    before_.empty() ? ::unsetenv("FINETUNE_PYTHON")
                    : ::setenv("FINETUNE_PYTHON", before_.c_str(), 1);
  }
  NamedPython(const NamedPython&) = delete;
  NamedPython& operator=(const NamedPython&) = delete;

 private:
  std::string before_;
};

TEST(PythonInterpreters, AreTheNamedOneAloneElseThePreferredAndThePaths) {
  {
    const NamedPython named("/opt/python");
    EXPECT_THAT(python_interpreters("/venv/python"), ElementsAre("/opt/python"));
  }
  for (const char* unset : {static_cast<const char*>(nullptr), ""}) {
    const NamedPython none(unset);
    EXPECT_THAT(python_interpreters("/venv/python"), ElementsAre("/venv/python", "python3"));
    EXPECT_THAT(python_interpreters(""), ElementsAre("python3"));
  }
}

// Starts a command whose standard output is returned; its process ID in `process`.
std::string output_of(const std::vector<std::string>& words, pid_t& process) {
  std::array<int, 2> ends = {};
  EXPECT_EQ(::pipe(ends.data()), 0);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_addclose(&files, ends[0]);
  EXPECT_EQ(start_in_own_group(words, files, process), 0);
  ::posix_spawn_file_actions_destroy(&files);
  ::close(ends[1]);
  std::string text;
  std::array<char, 256> block = {};
  for (ssize_t size = 0; (size = ::read(ends[0], block.data(), block.size())) > 0;) {
    text.append(block.data(), static_cast<size_t>(size));
  }
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(process, &status, 0), process);
  EXPECT_EQ(status, 0);
  return text;
}

// An interrupt from the terminal reaches the group of the terminal's command only.
TEST(StartInOwnGroup, LeadsAGroupWithoutBlockedSignals) {
  sigset_t blocked;
  sigset_t before;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGUSR1);
  ASSERT_EQ(::pthread_sigmask(SIG_BLOCK, &blocked, &before), 0);
  pid_t process = 0;
  const std::string text = output_of(
      // The shell itself blocks signals while it starts a command, so grep takes its place.
      {"sh", "-c", "cut -d' ' -f5 /proc/$$/stat; echo \"$1\"; exec grep SigBlk /proc/self/status",
       "sh", "one word"},
      process);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(text, std::to_string(process) + "\none word\nSigBlk:\t0000000000000000\n");
  EXPECT_NE(process, ::getpgrp());
}

TEST(StartInOwnGroup, ReturnsTheReasonWhereTheProgramIsMissing) {
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  pid_t process = 0;
  EXPECT_EQ(start_in_own_group({"no-such-interpreter-here"}, files, process), ENOENT);
  ::posix_spawn_file_actions_destroy(&files);
}

}  // namespace
}  // namespace finetune
