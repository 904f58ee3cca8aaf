// SPDX-License-Identifier: MIT
#include "finetune/checkpoint/output_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/checkpoint/layout.h"

namespace finetune::checkpoint {
namespace {

struct Owner {
  int64_t pid = 0;
  int64_t started = 0;  // of the process, in clock ticks since boot: tells reused ids apart
  std::string host;
  std::string boot_id;
  int64_t since_unix = 0;
};

std::string first_line(const std::string& path) {
  std::ifstream stream(path);
  std::string line;
  std::getline(stream, line);
  return line;
}

// Field 22 of /proc/<pid>/stat; counted behind the command's closing bracket, which may hold
// anything before it. 0 where there is no such process.
int64_t process_start(int64_t pid) {
  const std::string line = first_line("/proc/" + std::to_string(pid) + "/stat");
  const size_t bracket = line.rfind(')');
  if (bracket == std::string::npos) return 0;
  std::istringstream fields(line.substr(bracket + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  return std::strtoll(field.c_str(), nullptr, 10);
}

Owner this_process() {
  std::array<char, 256> host = {};
  ::gethostname(host.data(), host.size() - 1);
  return {.pid = ::getpid(),
          .started = process_start(::getpid()),
          .host = host.data(),
          .boot_id = first_line("/proc/sys/kernel/random/boot_id"),
          .since_unix = std::time(nullptr)};
}

std::string to_text(const Owner& owner) {
  const nlohmann::ordered_json json = {{"pid", owner.pid},
                                       {"process_start", owner.started},
                                       {"host", owner.host},
                                       {"boot_id", owner.boot_id},
                                       {"since", owner.since_unix}};
  return json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

// What the lock's file says; an owner without process id where it says nothing that can be read.
Owner read_owner(const std::string& path) {
  try {
    const std::string text = FileSystem::local().read_all(path, 4096);
    const nlohmann::ordered_json json = parse_json(text, path);
    return {.pid = json.value("pid", int64_t{0}),
            .started = json.value("process_start", int64_t{0}),
            .host = json.value("host", std::string()),
            .boot_id = json.value("boot_id", std::string()),
            .since_unix = json.value("since", int64_t{0})};
  } catch (const Error&) {
  } catch (const nlohmann::json::exception&) {
  }
  return {};
}

std::string describe(const Owner& owner) {
  if (owner.pid == 0) return "another process";
  std::string text = "process " + std::to_string(owner.pid) + " on '" + owner.host + "'";
  const std::time_t since = owner.since_unix;
  std::tm fields = {};
  std::array<char, 32> stamp = {};
  if (::gmtime_r(&since, &fields) != nullptr &&
      std::strftime(stamp.data(), stamp.size(), "%Y-%m-%d %H:%M:%S UTC", &fields) > 0) {
    text += " since " + std::string(stamp.data());
  }
  return text;
}

[[noreturn]] void busy(const std::string& output_dir, const Owner& owner) {
  throw Error(ErrorKind::kBusy, "'" + output_dir + "' is in use by " + describe(owner) +
                                    "; wait until it is finished, stop it, or choose another "
                                    "output_dir");
}

[[noreturn]] void fail(const std::string& path, int error) {
  throw Error(ErrorKind::kIo, "cannot lock '" + path + "': " + std::strerror(error) +
                                  "; choose an output_dir that you may write to");
}

// True where the file system has no locks and the record shows an owner that is alive here.
bool lives_without_lock(const Owner& owner) {
  const Owner self = this_process();
  return owner.pid != 0 && owner.pid != self.pid && owner.host == self.host &&
         owner.boot_id == self.boot_id && owner.started != 0 &&
         owner.started == process_start(owner.pid);
}

}  // namespace

OutputLock::OutputLock(const std::string& output_dir) {
  try {
    FileSystem::local().make_directories(output_dir);
  } catch (const Error& error) {
    throw Error(error.kind(),
                std::string(error.what()) + "; choose an output_dir that you may write to");
  }
  const std::string path = join_path(output_dir, kLockFile);
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (descriptor_ < 0) fail(path, errno);
  try {
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) busy(output_dir, read_owner(path));
      if (errno != ENOSYS && errno != EOPNOTSUPP && errno != ENOLCK && errno != EINVAL) {
        fail(path, errno);
      }
      const Owner owner = read_owner(path);
      if (lives_without_lock(owner)) busy(output_dir, owner);
      log::warning("'" + output_dir +
                   "' lies on a file system without locks: take care that no other machine trains "
                   "there");
    }
    const std::string record = to_text(this_process());
    if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, record.data(), record.size(),
                                                     0) != static_cast<ssize_t>(record.size())) {
      // The lock is held all the same; only the other's message will name nobody.
      log::debug("the owner of '" + path + "' could not be recorded");
    }
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

OutputLock::~OutputLock() {
  if (::ftruncate(descriptor_, 0) != 0) {
    log::debug("the owner's record could not be cleared");
  }
  ::close(descriptor_);
}

}  // namespace finetune::checkpoint
