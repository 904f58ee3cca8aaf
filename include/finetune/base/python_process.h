// SPDX-License-Identifier: MIT
#pragma once

#include <spawn.h>
#include <sys/types.h>

#include <string>
#include <vector>

// Starts Python interpreters that run scripts for this program.
namespace finetune {

// Starts words[0], searched in PATH, in its own process group, because only this program should
// handle interrupts from the terminal. Returns 0, or the errno of the failure.
[[nodiscard]] int start_in_own_group(std::vector<std::string> words,
                                     const posix_spawn_file_actions_t& files, pid_t& process);

// Returns the interpreters to try, in order: only FINETUNE_PYTHON if it is set; otherwise
// `preferred` unless empty, then python3.
[[nodiscard]] std::vector<std::string> python_interpreters(const std::string& preferred);

// Searches PATH for a program. Returns its path, or "" if PATH does not contain it.
[[nodiscard]] std::string find_program(const std::string& name);

}  // namespace finetune
