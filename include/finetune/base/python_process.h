// SPDX-License-Identifier: MIT
#pragma once

#include <spawn.h>
#include <sys/types.h>

#include <string>
#include <vector>

// Python interpreters that run a script for this program.
namespace finetune {

// Starts words[0], found by PATH, in its own process group, because this program handles interrupts
// from the terminal. Returns 0, or the errno of the failure.
[[nodiscard]] int start_in_own_group(std::vector<std::string> words,
                                     const posix_spawn_file_actions_t& files, pid_t& process);

// The interpreters to ask, in order: the one that FINETUNE_PYTHON names and no other, else
// `preferred` where it is not empty, then python3.
[[nodiscard]] std::vector<std::string> python_interpreters(const std::string& preferred);

}  // namespace finetune
