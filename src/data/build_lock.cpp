// SPDX-License-Identifier: MIT
#include "data/build_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "data/cache_failure.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"

namespace finetune {

BuildLock::BuildLock(const std::string& path, const std::string& key) {
  do {
    close();
    open(path);
    take(key);
  } while (!is_at(path));
}

BuildLock::~BuildLock() { close(); }

void BuildLock::open(const std::string& path) {
  constexpr int kTries = 100;
  int error = 0;
  for (int i = 0; i < kTries; ++i) {
    on_cache([&] { FileSystem::local().make_directories(parent_path(path)); });
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor_ >= 0) return;
    error = errno;
    if (error != ENOENT) break;  // ENOENT: the folder was deleted meanwhile
  }
  throw CacheFailure("cannot open '" + path + "': " + std::strerror(error));
}

void BuildLock::take(const std::string& key) {
  constexpr std::chrono::milliseconds kBetweenTries(50);
  while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) break;
    if (!has_waited_) {
      log::info(key + ": another process is tokenising the same data; waiting for it");
    }
    has_waited_ = true;
    try {
      interrupt::throw_if_requested("waiting for another process that tokenises " + key);
    } catch (const Interrupted&) {
      close();
      throw;
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
}

// Whether `path` is still the locked file. The previous owner may have deleted it; then a new
// contender would lock another file.
bool BuildLock::is_at(const std::string& path) const {
  struct stat held = {};
  struct stat named = {};
  if (::fstat(descriptor_, &held) != 0) return true;
  if (::stat(path.c_str(), &named) != 0) return errno != ENOENT;
  return held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

void BuildLock::close() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

}  // namespace finetune
