// SPDX-License-Identifier: MIT
#include "finetune/base/child_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

namespace finetune {
namespace {

// Runs a program and returns its standard output; sets its process ID.
std::string output_of_child(ChildProgram program, pid_t& process) {
  std::array<int, 2> ends = {};
  EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  program.streams[1] = ends[1];
  EXPECT_EQ(start_program(program, process), 0);
  ::close(ends[1]);
  std::string text;
  std::array<char, 256> block = {};
  for (ssize_t size = 0; (size = ::read(ends[0], block.data(), block.size())) > 0;) {
    text.append(block.data(), static_cast<size_t>(size));
  }
  ::close(ends[0]);
  int status = 0;
  EXPECT_TRUE(wait_for_end(process, status));
  EXPECT_EQ(status, 0);
  return text;
}

// Prints the IDs of the group and of the session, and the blocked signals.
ChildProgram identity(ChildGroup group) {
  return {.words = {"grep", "-E", "NSpgid|NSsid|SigBlk", "/proc/self/status"}, .group = group};
}

std::string identity_text(pid_t group, pid_t session, const char* blocked) {
  return "NSpgid:\t" + std::to_string(group) + "\nNSsid:\t" + std::to_string(session) +
         "\nSigBlk:\t" + blocked + "\n";
}

std::string identity_with_blocked_signal(const ChildProgram& program, pid_t& process) {
  sigset_t blocked;
  sigset_t before;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGUSR1);
  EXPECT_EQ(::pthread_sigmask(SIG_BLOCK, &blocked, &before), 0);
  std::string text = output_of_child(program, process);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return text;
}

constexpr char kNoneBlocked[] = "0000000000000000";

// An interrupt from the terminal reaches the group of the terminal's command only.
TEST(StartProgram, LeadsAGroupWithoutBlockedSignals) {
  pid_t process = 0;
  const std::string text = identity_with_blocked_signal(identity(ChildGroup::kOwn), process);
  EXPECT_EQ(text, identity_text(process, ::getsid(0), kNoneBlocked));
}

TEST(StartProgram, LeadsASessionWithoutBlockedSignals) {
  pid_t process = 0;
  const std::string text = identity_with_blocked_signal(identity(ChildGroup::kOwnSession), process);
  EXPECT_EQ(text, identity_text(process, process, kNoneBlocked));
}

TEST(StartProgram, InheritsTheGroupAndTheSignalMask) {
  pid_t process = 0;
  const std::string text = identity_with_blocked_signal(identity(ChildGroup::kInherited), process);
  EXPECT_EQ(text, identity_text(::getpgrp(), ::getsid(0), "0000000000000200"));
}

TEST(StartProgram, ForksForADeathSignalWithTheSameGroupAndMask) {
  ChildProgram program = identity(ChildGroup::kOwn);
  program.file = "/bin/grep";
  program.death_signal = SIGKILL;
  pid_t process = 0;
  const std::string text = identity_with_blocked_signal(program, process);
  EXPECT_EQ(text, identity_text(process, ::getsid(0), kNoneBlocked));
}

TEST(StartProgram, ReadsNothingFromTheNullStream) {
  pid_t process = 0;
  EXPECT_EQ(output_of_child(
                {.words = {"cat"}, .streams = {kNullStream, kInheritedStream, kInheritedStream}},
                process),
            "");
}

TEST(StartProgram, PassesTheEnvironmentOnly) {
  pid_t process = 0;
  EXPECT_EQ(output_of_child({.words = {"env"}, .environment = {"ONE=two words"}}, process),
            "ONE=two words\n");
}

TEST(StartProgram, RunsTheFileUnderAnotherName) {
  pid_t process = 0;
  EXPECT_EQ(output_of_child({.words = {"name", "-c", "echo $0"}, .file = "/bin/sh"}, process),
            "name\n");
}

TEST(StartProgram, ReturnsTheReasonWhereTheProgramIsMissing) {
  pid_t process = 0;
  EXPECT_EQ(start_program({.words = {"no-such-interpreter-here"}}, process), ENOENT);
}

TEST(StartProgram, ExitsWith127WhereAForkedChildHasNoProgram) {
  pid_t process = 0;
  ASSERT_EQ(
      start_program({.words = {"none"}, .file = "/no/program", .death_signal = SIGKILL}, process),
      0);
  int status = 0;
  ASSERT_TRUE(wait_for_end(process, status));
  EXPECT_EQ(WEXITSTATUS(status), 127);
}

TEST(HasEnded, IsFalseUntilTheChildIsKilled) {
  pid_t process = 0;
  ASSERT_EQ(start_program({.words = {"sleep", "600"}}, process), 0);
  int status = 0;
  EXPECT_FALSE(has_ended(process, status));
  kill_and_wait(process);
  EXPECT_TRUE(has_ended(process, status));
}

TEST(WaitForEnd, IsFalseForAProcessThatIsNoChild) {
  int status = 0;
  EXPECT_FALSE(wait_for_end(::getpid(), status));
}

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
    EXPECT_THAT(python_interpreters("/venv/python"), ::testing::ElementsAre("/opt/python"));
  }
  for (const char* unset : {static_cast<const char*>(nullptr), ""}) {
    const NamedPython none(unset);
    EXPECT_THAT(python_interpreters("/venv/python"),
                ::testing::ElementsAre("/venv/python", "python3"));
    EXPECT_THAT(python_interpreters(""), ::testing::ElementsAre("python3"));
  }
}

}  // namespace
}  // namespace finetune
