// SPDX-License-Identifier: MIT
#include "finetune/base/python_process.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <sstream>

#include "finetune/base/file_system.h"

namespace finetune {

int start_in_own_group(std::vector<std::string> words, const posix_spawn_file_actions_t& files,
                       pid_t& process) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  const int problem =
      ::posix_spawnp(&process, arguments[0], &files, &attributes, arguments.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  return problem;
}

std::vector<std::string> python_interpreters(const std::string& preferred) {
  const char* named = std::getenv("FINETUNE_PYTHON");
  if (named != nullptr && *named != '\0') return {named};
  std::vector<std::string> found;
  if (!preferred.empty()) found.push_back(preferred);
  found.emplace_back("python3");
  return found;
}

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = join_path(folder.empty() ? "." : folder, name);
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

}  // namespace finetune
