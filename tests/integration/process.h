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
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/paths.h"
#include "support/session_request.h"

namespace finetune::testing {

using Arguments = std::vector<std::string>;

struct ProcessOptions {
  std::map<std::string, std::string> environment;  // added to the test's own
  std::string folder;                              // working directory; empty: the test's own
  std::string watch;                      // a folder whose new names wait_for_file() observes
  rlim_t max_file_bytes = RLIM_INFINITY;  // writes beyond it fail, as on a full disk
  // The program may be a fork of a warm process (WarmProgram) instead of a new one. Not where the
  // start or the memory of the process matter.
  bool may_be_warm = true;
  std::string preload = {};  // a library for LD_PRELOAD
};

struct ProcessResult {
  int code = -1;  // 128 + number if a signal ended it, as in a shell
  std::string out;
  std::string err;
  double seconds = 0.0;
  int64_t peak_bytes = 0;  // of resident memory
};

// A process that has libtorch loaded, of which sessions of the program are forks, one at a time: a
// start takes a tenth of a new process's time. It ends with the test.
class WarmProgram {
 public:
  // The one that has this library preloaded; nullptr while it has a session.
  static WarmProgram* free(const std::string& preload) {
    static std::map<std::string, WarmProgram> programs;
    WarmProgram& program = programs.try_emplace(preload, preload).first->second;
    return program.has_session_ ? nullptr : &program;
  }

  explicit WarmProgram(const std::string& preload) {
    std::array<int, 2> ends = {};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
      throw std::runtime_error("socketpair failed");
    }
    const std::string path = session_server_path();
    const std::string number = std::to_string(ends[1]);
    server_ = ::fork();
    if (server_ == 0) {
      ::fcntl(ends[1], F_SETFD, 0);
      const int none = ::open("/dev/null", O_RDONLY);
      ::dup2(none, STDIN_FILENO);
      ::setenv("OMP_NUM_THREADS", "1", 1);
      if (!preload.empty()) ::setenv("LD_PRELOAD", preload.c_str(), 1);
      ::execl(path.c_str(), path.c_str(), "--socket", number.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    socket_ = ends[0];
  }
  // Its CPU time counts as the test's once it was waited for.
  ~WarmProgram() {
    ::close(socket_);
    ::waitpid(server_, nullptr, 0);
  }
  WarmProgram(const WarmProgram&) = delete;
  WarmProgram& operator=(const WarmProgram&) = delete;

  // Returns the number of the session's process.
  pid_t start(const SessionRequest& request, std::array<int, 3> streams) {
    pid_t session = -1;
    if (!send_request(socket_, text_of(request), streams) || !receive_value(socket_, session)) {
      throw std::runtime_error("the session server is gone");
    }
    has_session_ = true;
    return session;
  }
  std::optional<SessionEnd> await_end() {
    SessionEnd end;
    if (!receive_value(socket_, end)) return std::nullopt;
    has_session_ = false;
    return end;
  }

 private:
  bool has_session_ = false;
  int socket_ = -1;
  pid_t server_ = -1;
};

// Returns whether a warm program does what a new process of it would.
inline bool can_be_warm(const Arguments& words, const ProcessOptions& options) {
  if (!options.may_be_warm || words.empty() || words[0] != binary_path()) return false;
  for (const auto& [name, value] : options.environment) {
    if (is_read_early(name)) return false;
  }
  size_t bytes = 0;
  for (const std::string& word : words) bytes += word.size() + 1;
  return bytes < kLongestRequest / 2 && !session_server_path().empty();
}

// One run of a program. Its output is collected during waits, and it is killed at its time limit or
// by the destructor.
class Process {
 public:
  explicit Process(const Arguments& words, const ProcessOptions& options = {})
      : warm_(can_be_warm(words, options) ? WarmProgram::free(options.preload) : nullptr) {
    if (!options.watch.empty()) {
      watch_ = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
      ::inotify_add_watch(watch_, options.watch.c_str(), IN_CREATE | IN_MOVED_TO);
    }
    std::array<int, 2> out = {};
    std::array<int, 2> err = {};
    if (::pipe2(out.data(), O_CLOEXEC) != 0 || ::pipe2(err.data(), O_CLOEXEC) != 0) {
      throw std::runtime_error("pipe2 failed");
    }
    if (warm_ != nullptr) {
      const int none = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      child_ = warm_->start(request(words, options), {none, out[1], err[1]});
      ::close(none);
    } else {
      child_ = ::fork();
    }
    if (child_ < 0) throw std::runtime_error("fork failed");
    if (child_ == 0) start(words, options, out[1], err[1]);
    ::close(out[1]);
    ::close(err[1]);
    pipes_ = {out[0], err[0]};
  }
  ~Process() {
    if (!ended_) {
      ::kill(child_, SIGKILL);
      (void)await_end();
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
    const std::optional<SessionEnd> end = await_end();
    if (!end) throw std::runtime_error("the program was lost");
    ended_ = true;
    return {.code = WIFEXITED(end->status) ? WEXITSTATUS(end->status) : 128 + WTERMSIG(end->status),
            .out = out_,
            .err = err_,
            .seconds = age(),
            .peak_bytes = end->peak_kib * 1024};
  }

 private:
  [[nodiscard]] std::optional<SessionEnd> await_end() const {
    if (warm_ != nullptr) return warm_->await_end();
    SessionEnd end;
    rusage usage = {};
    if (::wait4(child_, &end.status, 0, &usage) < 0) return std::nullopt;
    end.peak_kib = usage.ru_maxrss;
    return end;
  }

  [[nodiscard]] static SessionRequest request(const Arguments& words,
                                              const ProcessOptions& options) {
    return {.program = words[0],
            .folder =
                options.folder.empty() ? std::filesystem::current_path().string() : options.folder,
            .max_file_bytes = options.max_file_bytes == RLIM_INFINITY
                                  ? ""
                                  : std::to_string(options.max_file_bytes),
            .environment = options.environment,
            .words = {words.begin() + 1, words.end()}};
  }

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
    if (!options.preload.empty()) ::setenv("LD_PRELOAD", options.preload.c_str(), 1);
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
  WarmProgram* warm_ = nullptr;
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
