// SPDX-License-Identifier: MIT
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/paths.h"

namespace finetune::testing {

using Arguments = std::vector<std::string>;

struct ProcessOptions {
  std::map<std::string, std::string> environment;  // added to the test's own
  std::string folder;                              // working directory; empty: the test's own
  std::string watch;                      // a folder whose new names wait_for_file() observes
  rlim_t max_file_bytes = RLIM_INFINITY;  // writes beyond it fail, as on a full disk
};

struct ProcessResult {
  int code = -1;  // 128 + number if a signal ended it, as in a shell
  std::string out;
  std::string err;
  double seconds = 0.0;
  int64_t peak_bytes = 0;  // of resident memory
};

// One run of a program. Its output is collected during waits, and it is killed at its time limit or
// by the destructor.
class Process {
 public:
  explicit Process(const Arguments& words, const ProcessOptions& options = {}) {
    if (!options.watch.empty()) {
      watch_ = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
      ::inotify_add_watch(watch_, options.watch.c_str(), IN_CREATE | IN_MOVED_TO);
    }
    std::array<int, 2> out = {};
    std::array<int, 2> err = {};
    if (::pipe2(out.data(), O_CLOEXEC) != 0 || ::pipe2(err.data(), O_CLOEXEC) != 0) {
      throw std::runtime_error("pipe2 failed");
    }
    child_ = ::fork();
    if (child_ < 0) throw std::runtime_error("fork failed");
    if (child_ == 0) start(words, options, out[1], err[1]);
    ::close(out[1]);
    ::close(err[1]);
    pipes_ = {out[0], err[0]};
  }
  ~Process() {
    if (!ended_) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
    for (const int descriptor : {pipes_[0], pipes_[1], watch_}) {
      if (descriptor >= 0) ::close(descriptor);
    }
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void send(int signal) const { ::kill(child_, signal); }
  [[nodiscard]] pid_t id() const { return child_; }

  // Waits for `text` in the output; returns false if the program ends first.
  bool wait_for_output(const std::string& text, double seconds = 60) {
    return wait([&] { return (out_ + err_).find(text) != std::string::npos; }, seconds);
  }
  // Waits until names that contain `part` appeared `times` times in the watched folder.
  bool wait_for_file(const std::string& part, int times = 1, double seconds = 60) {
    return wait(
        [&] {
          int seen = 0;
          for (const std::string& name : names_) seen += name.find(part) != std::string::npos;
          return seen >= times;
        },
        seconds);
  }
  // Waits until that many seconds after the start; returns false if the program ends first.
  bool wait_until(double seconds_since_start) {
    return !wait([] { return false; }, seconds_since_start - age(), false);
  }

  ProcessResult finish(double seconds = 120) {
    wait([] { return false; }, seconds);
    int status = 0;
    rusage usage = {};
    if (::wait4(child_, &status, 0, &usage) < 0) throw std::runtime_error("wait4 failed");
    ended_ = true;
    return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            .out = out_,
            .err = err_,
            .seconds = age(),
            .peak_bytes = static_cast<int64_t>(usage.ru_maxrss) * 1024};
  }

 private:
  [[noreturn]] static void start(const Arguments& words, const ProcessOptions& options, int out,
                                 int err) {
    ::dup2(out, STDOUT_FILENO);
    ::dup2(err, STDERR_FILENO);
    const int none = ::open("/dev/null", O_RDONLY);
    ::dup2(none, STDIN_FILENO);
    if (options.max_file_bytes != RLIM_INFINITY) {
      ::signal(SIGXFSZ, SIG_IGN);
      const rlimit limit = {.rlim_cur = options.max_file_bytes, .rlim_max = options.max_file_bytes};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    ::setenv("OMP_NUM_THREADS", "1", 1);
    for (const auto& [name, value] : options.environment) {
      ::setenv(name.c_str(), value.c_str(), 1);
    }
    if (!options.folder.empty() && ::chdir(options.folder.c_str()) != 0) ::_exit(126);
    std::vector<char*> list;
    for (const std::string& word : words) list.push_back(const_cast<char*>(word.c_str()));
    list.push_back(nullptr);
    ::execvp(list[0], list.data());
    ::_exit(127);
  }

  [[nodiscard]] double age() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  // Collects output until `done` or the end of the output (returns false). At the limit throws, or
  // returns false.
  bool wait(const std::function<bool()>& done, double seconds, bool limit_is_error = true) {
    const double end = age() + seconds;
    bool open = true;
    while (true) {
      if (done()) return true;
      if (!open) return false;
      if (age() > end) {
        if (!limit_is_error) return false;
        throw std::runtime_error("the program takes too long; it said:\n" + out_ + err_);
      }
      open = collect(std::min(end - age(), 1.0));
      if (!limit_is_error && !open) return true;
    }
  }

  // Returns false after both streams are closed.
  bool collect(double seconds) {
    std::array<pollfd, 3> polls = {
        {{pipes_[0], POLLIN, 0}, {pipes_[1], POLLIN, 0}, {watch_, POLLIN, 0}}};
    const int wait_ms = std::max(1, static_cast<int>(seconds * 1000));
    if (::poll(polls.data(), polls.size(), wait_ms) < 0 && errno != EINTR) {
      throw std::runtime_error("poll failed");
    }
    for (size_t i = 0; i < 2; ++i) {
      if (polls[i].revents == 0) continue;
      std::array<char, 65536> buffer;
      const ssize_t size = ::read(pipes_[i], buffer.data(), buffer.size());
      if (size > 0) (i == 0 ? out_ : err_).append(buffer.data(), static_cast<size_t>(size));
      if (size == 0) {
        ::close(pipes_[i]);
        pipes_[i] = -1;
      }
    }
    if (polls[2].revents != 0) collect_names();
    return pipes_[0] >= 0 || pipes_[1] >= 0;
  }

  void collect_names() {
    alignas(inotify_event) std::array<char, 65536> buffer;
    const ssize_t size = ::read(watch_, buffer.data(), buffer.size());
    for (ssize_t at = 0; at < size;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
      if (event->len > 0) names_.emplace_back(event->name);
      at += static_cast<ssize_t>(sizeof(inotify_event)) + event->len;
    }
  }

  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  pid_t child_ = 0;
  bool ended_ = false;
  std::array<int, 2> pipes_ = {-1, -1};
  int watch_ = -1;
  std::string out_;
  std::string err_;
  std::vector<std::string> names_;
};

inline ProcessResult run(const Arguments& words, const ProcessOptions& options = {},
                         double seconds = 120) {
  return Process(words, options).finish(seconds);
}

// The program under test.
inline Arguments finetune_command(const Arguments& arguments) {
  Arguments words = {binary_path()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

inline ProcessResult finetune(const Arguments& arguments, const ProcessOptions& options = {},
                              double seconds = 120) {
  return run(finetune_command(arguments), options, seconds);
}

}  // namespace finetune::testing
