// SPDX-License-Identifier: MIT
#include "data/cache/build_lock.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "data/cache/cache_failure.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"

namespace finetune {

BuildLock::BuildLock(const std::string& path, const std::string& key) {
  // The previous owner may have deleted the file; then a new contender would lock another one.
  do {
    open(path);
    take(key);
  } while (!file_.is_at(path));
}

void BuildLock::open(const std::string& path) {
  constexpr int kTries = 100;
  int error = 0;
  for (int i = 0; i < kTries; ++i) {
    on_cache([&] {
      FileSystem::local().refuse_link(parent_path(path));
      FileSystem::local().make_directories(parent_path(path));
    });
    if (file_.open(path)) return;
    error = file_.error();
    if (error != ENOENT) break;  // ENOENT: the folder was deleted meanwhile
  }
  throw CacheFailure("cannot open '" + path + "': " + std::strerror(error));
}

void BuildLock::take(const std::string& key) {
  constexpr std::chrono::milliseconds kBetweenTries(50);
  while (file_.lock() == LockedFile::Outcome::kHeld) {
    if (!has_waited_) {
      log::info(key + ": another process is tokenising the same data; waiting for it");
    }
    has_waited_ = true;
    interrupt::throw_if_requested("waiting for another process that tokenises " + key);
    std::this_thread::sleep_for(kBetweenTries);
  }
}

}  // namespace finetune
