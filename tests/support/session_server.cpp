// SPDX-License-Identifier: MIT
// Starts sessions of `finetune` for a test that kills them, either from a binary or in forks of
// this process, which has libtorch loaded and warm: a start then takes a twentieth of the time of a
// new process.
//
//   session_server --socket FD   sessions as requests of tests (session_request.h), all of them
//   forks session_server WORD...       the command that warms it up, such as: train warm.json
//
// Each line of standard input starts a session: its output file, the binary ("" for a fork) and the
// words of its command, separated by tabs. Standard output gets "ready" once, then for each session
// "started PID" (also the number of its process group) and, when no process of it is left,
// "ended STATUS": the exit code of the first process, or minus the signal that ended it.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "cli/process/commands.h"
#include "cli/process/outcome.h"
#include "cli/process/own_runs.h"
#include "finetune/base/interrupt.h"
#include "finetune/tensor/device.h"
#include "support/session_request.h"

namespace {

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream stream(line);
  for (std::string word; std::getline(stream, word, '\t');) words.push_back(word);
  return words;
}

[[noreturn]] void be_session(const std::vector<std::string>& line) {
  ::setpgid(0, 0);
  ::signal(SIGPIPE, SIG_DFL);
  const int output = ::open(line[0].c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int input = ::open("/dev/null", O_RDONLY);
  ::dup2(input, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::close(input);
  ::close(output);
  std::vector<std::string> words(line.begin() + 2, line.end());
  if (!line[1].empty()) {
    std::vector<char*> arguments = {const_cast<char*>(line[1].c_str())};
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ::execv(line[1].c_str(), arguments.data());
    ::_exit(127);
  }
  finetune::interrupt::install_handlers();
  finetune::interrupt::reset();
  const int code = finetune::cli::exit_code_of([&] { return finetune::cli::run(words); });
  std::cout.flush();
  ::_exit(code);
}

// Waits for every process of the session, also for orphans of the first process.
int wait_for_all(pid_t first) {
  int code = 0;
  while (true) {
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, 0);
    if (ended == first) code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    if (ended < 0 && errno == ECHILD) return code;
  }
}

// Waits until only this thread is left, because a fork copies only the calling thread.
bool is_alone() {
  namespace fs = std::filesystem;
  for (int i = 0; i < 20'000; ++i) {
    if (std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator()) == 1) {
      return true;
    }
    ::usleep(1000);
  }
  return false;
}

// Becomes the program, as a new process of it would be.
[[noreturn]] void be_program(const finetune::testing::SessionRequest& request,
                             std::array<int, 3> streams) {
  for (int stream = 0; stream <= 2; ++stream) ::dup2(streams[static_cast<size_t>(stream)], stream);
  for (const int stream : streams) ::close(stream);
  if (::chdir(request.folder.c_str()) != 0) ::_exit(126);
  if (!request.max_file_bytes.empty()) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlim_t bytes = std::stoull(request.max_file_bytes);
    const rlimit limit = {.rlim_cur = bytes, .rlim_max = bytes};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  for (const auto& [name, value] : request.environment) {
    if (finetune::testing::is_read_early(name)) {
      std::cerr << "session_server: " << name << " needs a new process\n";
      ::_exit(126);
    }
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  finetune::interrupt::install_handlers();
  finetune::interrupt::reset();
  finetune::cli::set_own_program(request.program);
  finetune::cli::run_as_program(request.program.c_str(), request.words);
}

// Serves requests one by one until the test is gone.
int serve(int socket) {
  namespace testing = finetune::testing;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::fcntl(socket, F_SETFD, FD_CLOEXEC);
  finetune::choose_vector_math();
  if (!is_alone()) return 1;
  std::array<int, 3> streams = {-1, -1, -1};
  while (const auto text = testing::receive_request(socket, streams)) {
    const pid_t session = ::fork();
    if (session == 0) {
      ::close(socket);
      be_program(testing::request_of(*text), streams);
    }
    for (const int stream : streams) ::close(stream);
    if (session < 0 || !testing::send_value(socket, session)) return 3;
    testing::SessionEnd end;
    rusage usage = {};
    if (::wait4(session, &end.status, 0, &usage) < 0) return 3;
    end.peak_kib = usage.ru_maxrss;
    if (!testing::send_value(socket, end)) return 3;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--socket") return serve(std::stoi(argv[2]));
  const std::vector<std::string> warm_up(argv + 1, argv + argc);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  if (!warm_up.empty() &&
      finetune::cli::exit_code_of([&] { return finetune::cli::run(warm_up); }) != 0) {
    return 1;
  }
  if (!is_alone()) {
    std::cerr << "error: threads are left after the first session; set OMP_NUM_THREADS=1\n";
    return 1;
  }
  std::cout << "ready" << std::endl;
  for (std::string text; std::getline(std::cin, text);) {
    const std::vector<std::string> line = split(text);
    if (line.size() < 3) return 2;
    const pid_t first = ::fork();
    if (first < 0) return 3;
    if (first == 0) be_session(line);
    ::setpgid(first, first);  // in both processes, because either may come first
    std::cout << "started " << first << std::endl;
    std::cout << "ended " << wait_for_all(first) << std::endl;
  }
  return 0;
}
