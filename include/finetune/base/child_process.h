// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <array>
#include <string>
#include <vector>

// Finds other programs, starts them and waits for them. The caller owns a child that was started:
// it must wait for its end, or the child remains a zombie. All functions are thread-safe; only one
// thread may wait for a child. None throws on a system error.
namespace finetune {

// A standard stream of a child, unless it is a descriptor of the caller.
constexpr int kInheritedStream = -1;
constexpr int kNullStream = -2;  // /dev/null

enum class ChildGroup {
  kInherited,   // the caller's process group and signal mask
  kOwn,         // leads its own process group; no signal is blocked
  kOwnSession,  // leads its own session; no signal is blocked
};

struct ChildProgram {
  std::vector<std::string> words;  // not empty
  std::string file = {};           // the program to run; empty: words[0], searched in PATH
  // Standard input, output and error, set in this order. The caller keeps its descriptors.
  std::array<int, 3> streams = {kInheritedStream, kInheritedStream, kInheritedStream};
  std::vector<std::string> environment = {};  // NAME=VALUE; empty: the caller's environment
  ChildGroup group = ChildGroup::kInherited;
  // Unless 0, the child gets this signal when the thread that started it ends. Such a child needs
  // `file`, starts with the default action of SIGPIPE, and exits with 127 if `file` cannot be run.
  int death_signal = 0;
};

// Returns 0 and sets `process`, or returns the errno of the failure.
[[nodiscard]] int start_program(const ChildProgram& program, pid_t& process);

// Returns whether the child has ended, without waiting, and sets its wait status. A process that is
// no child of this one has ended; its status is not set.
[[nodiscard]] bool has_ended(pid_t process, int& status);

// Waits for the child and sets its wait status. Returns false if it is no child of this process.
bool wait_for_end(pid_t process, int& status);

// Kills the child, but not its own children, and waits for its end.
void kill_and_wait(pid_t process);

// Returns the interpreters to try, in order: only FINETUNE_PYTHON if it is set; otherwise
// `preferred` unless empty, then python3.
[[nodiscard]] std::vector<std::string> python_interpreters(const std::string& preferred);

// Searches PATH for a program. Returns its path, or "" if PATH does not contain it.
[[nodiscard]] std::string find_program(const std::string& name);

}  // namespace finetune
