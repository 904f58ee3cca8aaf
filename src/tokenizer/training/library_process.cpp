// SPDX-License-Identifier: MIT
#include "tokenizer/training/library_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"

namespace finetune::tokenizer {
namespace {

// A message consists of its kind, the size of its text, and the text.
enum class Message : char { kResult = 'R', kError = 'E', kProgress = 'P' };
constexpr size_t kHeaderBytes = 1 + sizeof(uint64_t);

void write_all(int descriptor, const void* data, size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t count = ::write(descriptor, at, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) ::_exit(kExitFailed);  // the parent is gone
    at += count;
    size -= static_cast<size_t>(count);
  }
}

void send(int descriptor, Message kind, const std::string& text) {
  std::string header(kHeaderBytes, static_cast<char>(kind));
  const uint64_t size = text.size();
  std::memcpy(&header[1], &size, sizeof(size));
  write_all(descriptor, header.data(), header.size());
  write_all(descriptor, text.data(), text.size());
}

void limit_processors(int processors) {
  cpu_set_t allowed;
  if (processors <= 0 || ::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  for (size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed) && --processors < 0) CPU_CLR(cpu, &allowed);
  }
  (void)::sched_setaffinity(0, sizeof(allowed), &allowed);
}

[[noreturn]] void run_child(const std::function<std::string(const ProcessReports&)>& work,
                            int messages, int errors, pid_t parent, int processors) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kExitFailed);
  // A terminal sends its signals to both processes; only the parent handles them.
  for (const int number : {SIGTERM, SIGINT, SIGUSR1, SIGHUP}) (void)::signal(number, SIG_IGN);
  const rlimit none{0, 0};
  (void)::setrlimit(RLIMIT_CORE, &none);
  (void)::dup2(errors, STDERR_FILENO);
  limit_processors(processors);
  const auto fail = [&](ErrorKind kind, const std::string& what) {
    send(messages, Message::kError, static_cast<char>(kind) + what);
  };
  try {
    send(messages, Message::kResult, work(ProcessReports(messages)));
  } catch (const Error& error) {
    fail(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    (void)::raise(SIGKILL);  // exit as if killed by the OOM killer
  } catch (const std::exception& error) {
    fail(ErrorKind::kData, error.what());
  }
  ::_exit(0);
}

class Pipe {
 public:
  Pipe() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) {
      throw Error(ErrorKind::kIo, std::string("no pipe could be made: ") + std::strerror(errno));
    }
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  [[nodiscard]] int read_end() const { return ends_[0]; }
  [[nodiscard]] int write_end() const { return ends_[1]; }
  void close_write_end() { close_end(1); }

  // Appends available bytes; returns false at the end.
  bool read_some(std::string& buffer) {
    std::array<char, 65536> block{};
    const ssize_t count = ::read(ends_[0], block.data(), block.size());
    if (count > 0) buffer.append(block.data(), static_cast<size_t>(count));
    if (count != 0 && (count > 0 || errno == EINTR)) return true;
    close_end(0);
    return false;
  }

 private:
  void close_end(size_t which) {
    if (ends_[which] >= 0) ::close(ends_[which]);
    ends_[which] = -1;
  }
  std::array<int, 2> ends_{-1, -1};
};

// The child process, as seen by its parent.
class Child {
 public:
  Child(pid_t process, Pipe& messages, Pipe& errors, const ProcessListener& listener)
      : process_(process), messages_(messages), errors_(errors), listener_(listener) {}
  ~Child() {
    if (process_ <= 0) return;
    (void)::kill(process_, SIGKILL);
    wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  std::string result(const std::string& phase) {
    while (messages_.read_end() >= 0 || errors_.read_end() >= 0) {
      interrupt::throw_if_requested(phase);
      std::array<pollfd, 2> waiting = {
          {{messages_.read_end(), POLLIN, 0}, {errors_.read_end(), POLLIN, 0}}};
      if (::poll(waiting.data(), waiting.size(), 200) <= 0) continue;
      if (waiting[0].revents != 0 && messages_.read_some(received_)) take_messages();
      if (waiting[1].revents != 0 && errors_.read_some(said_)) take_lines();
    }
    const int status = wait();
    if (error_) throw Error(*error_);
    if (result_) return std::move(*result_);
    throw ProcessDied(WIFSIGNALED(status) ? WTERMSIG(status) : 0, last_line_);
  }

 private:
  int wait() {
    int status = 0;
    while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
    process_ = -1;
    return status;
  }

  void take_messages() {
    size_t at = 0;
    while (received_.size() - at >= kHeaderBytes) {
      uint64_t size = 0;
      std::memcpy(&size, received_.data() + at + 1, sizeof(size));
      if (received_.size() - at - kHeaderBytes < size) break;
      take_message(static_cast<Message>(received_[at]), received_.substr(at + kHeaderBytes, size));
      at += kHeaderBytes + size;
    }
    received_.erase(0, at);
  }

  void take_message(Message kind, std::string text) {
    if (kind == Message::kResult) {
      result_ = std::move(text);
    } else if (kind == Message::kError) {
      error_.emplace(static_cast<ErrorKind>(text[0]), text.substr(1));
    } else if (listener_.progress) {
      std::array<int64_t, 2> numbers{};
      std::memcpy(numbers.data(), text.data(), sizeof(numbers));
      listener_.progress(numbers[0], numbers[1]);
    }
  }

  void take_lines() {
    size_t start = 0;
    for (size_t end; (end = said_.find('\n', start)) != std::string::npos; start = end + 1) {
      const std::string line = said_.substr(start, end - start);
      if (line.find("LOG(INFO)") == std::string::npos &&
          line.find("unrecoverable error") == std::string::npos && !line.empty()) {
        last_line_ = line;
      }
      if (listener_.line) listener_.line(line);
    }
    said_.erase(0, start);
  }

  pid_t process_;
  Pipe& messages_;
  Pipe& errors_;
  const ProcessListener& listener_;
  std::string received_;
  std::string said_;
  std::string last_line_;
  std::optional<std::string> result_;
  std::optional<Error> error_;
};

}  // namespace

void ProcessReports::progress(int64_t done, int64_t total) const {
  std::string text(2 * sizeof(int64_t), '\0');
  std::memcpy(text.data(), &done, sizeof(done));
  std::memcpy(text.data() + sizeof(done), &total, sizeof(total));
  send(descriptor_, Message::kProgress, text);
}

std::string run_in_process(const std::function<std::string(const ProcessReports&)>& work,
                           const ProcessListener& listener, int processors,
                           const std::string& phase) {
  Pipe messages;
  Pipe errors;
  const pid_t parent = ::getpid();
  const pid_t process = ::fork();
  if (process < 0) {
    throw Error(ErrorKind::kIo,
                std::string("no process could be started: ") + std::strerror(errno));
  }
  if (process == 0) {
    run_child(work, messages.write_end(), errors.write_end(), parent, processors);
  }
  messages.close_write_end();
  errors.close_write_end();
  return Child(process, messages, errors, listener).result(phase);
}

}  // namespace finetune::tokenizer
