// SPDX-License-Identifier: MIT
#include "data/build_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "data/cache_failure.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"

namespace finetune {

BuildLock::BuildLock(const std::string& path, const std::string& key) {
  constexpr std::chrono::milliseconds kBetweenTries(50);
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0) {
    throw CacheFailure("cannot open '" + path + "': " + std::strerror(errno));
  }
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
      ::close(descriptor_);
      throw;
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
}

BuildLock::~BuildLock() { ::close(descriptor_); }

}  // namespace finetune
