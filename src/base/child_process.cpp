// SPDX-License-Identifier: MIT
#include "finetune/base/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <sstream>

#include "finetune/base/file_system.h"

namespace finetune {
namespace {

std::vector<char*> argument_list(const std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (const std::string& text : texts) list.push_back(const_cast<char*>(text.c_str()));
  list.push_back(nullptr);
  return list;
}

// Runs between fork and exec, so it calls only async-signal-safe functions.
[[noreturn]] void exec_program(const ChildProgram& program, char* const* words,
                               char* const* environment, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, program.death_signal);
  if (::getppid() != parent) ::_exit(127);
  if (program.group == ChildGroup::kOwn) ::setpgid(0, 0);
  if (program.group == ChildGroup::kOwnSession) ::setsid();
  if (program.group != ChildGroup::kInherited) {
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
  }
  ::signal(SIGPIPE, SIG_DFL);
  for (int stream = 0; stream < 3; ++stream) {
    const int source = program.streams[static_cast<size_t>(stream)];
    if (source == kInheritedStream) continue;
    ::dup2(source == kNullStream ? ::open("/dev/null", O_RDWR) : source, stream);
  }
  ::execve(program.file.c_str(), words, environment);
  ::_exit(127);
}

int spawn_program(const ChildProgram& program, char* const* words, char* const* environment,
                  pid_t& process) {
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  for (int stream = 0; stream < 3; ++stream) {
    const int source = program.streams[static_cast<size_t>(stream)];
    if (source == kNullStream) {
      const int mode = stream == STDIN_FILENO ? O_RDONLY : O_WRONLY;
      ::posix_spawn_file_actions_addopen(&files, stream, "/dev/null", mode, 0);
    } else if (source != kInheritedStream) {
      ::posix_spawn_file_actions_adddup2(&files, source, stream);
    }
  }
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);  // an empty signal mask, and a new group's ID is the child's
  if (program.group != ChildGroup::kInherited) {
    const int leads =
        program.group == ChildGroup::kOwn ? POSIX_SPAWN_SETPGROUP : POSIX_SPAWN_SETSID;
    ::posix_spawnattr_setflags(&attributes, static_cast<short>(POSIX_SPAWN_SETSIGMASK | leads));
  }
  const char* const file = program.file.empty() ? words[0] : program.file.c_str();
  const int problem = ::posix_spawnp(&process, file, &files, &attributes, words, environment);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  return problem;
}

}  // namespace

int start_program(const ChildProgram& program, pid_t& process) {
  const std::vector<char*> words = argument_list(program.words);
  const std::vector<char*> own = argument_list(program.environment);
  char* const* const environment = program.environment.empty() ? environ : own.data();
  if (program.death_signal == 0) return spawn_program(program, words.data(), environment, process);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) exec_program(program, words.data(), environment, parent);
  if (child < 0) return errno;
  process = child;
  return 0;
}

bool has_ended(pid_t process, int& status) {
  const pid_t ended = ::waitpid(process, &status, WNOHANG);
  return ended == process || (ended < 0 && errno != EINTR);
}

bool wait_for_end(pid_t process, int& status) {
  while (::waitpid(process, &status, 0) < 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

void kill_and_wait(pid_t process) {
  ::kill(process, SIGKILL);
  int status = 0;
  wait_for_end(process, status);
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
