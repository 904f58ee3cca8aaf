// SPDX-License-Identifier: MIT
#include "finetune/base/locked_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace finetune {

bool LockedFile::open(const std::string& path) {
  close();
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0644);
  error_ = errno;
  struct stat status = {};
  if (!is_open() || (::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode))) {
    return is_open();
  }
  close();
  error_ = EINVAL;
  return false;
}

LockedFile::Outcome LockedFile::lock(Mode mode) {
  const int operation = mode == Mode::kShared ? LOCK_SH : LOCK_EX;
  while (::flock(descriptor_, operation | LOCK_NB) != 0) {
    error_ = errno;
    if (error_ != EINTR) return error_ == EWOULDBLOCK ? Outcome::kHeld : Outcome::kUnsupported;
  }
  return Outcome::kLocked;
}

bool LockedFile::is_at(const std::string& path) const {
  struct stat held = {};
  struct stat named = {};
  if (::fstat(descriptor_, &held) != 0) return true;
  if (::stat(path.c_str(), &named) != 0) return errno != ENOENT;
  return held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

void LockedFile::close() {
  if (is_open()) ::close(descriptor_);
  descriptor_ = -1;
}

}  // namespace finetune
