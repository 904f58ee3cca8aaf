// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace finetune {

// An open file with a lock that other processes of this machine see (flock). The kernel releases
// it when the process ends, however it ends. Not for network file systems.
class LockedFile {
 public:
  enum class Outcome {
    kLocked,
    kHeld,         // by another process
    kUnsupported,  // this file system has no locks, or a failure: see error()
  };
  enum class Mode { kExclusive, kShared };

  LockedFile() = default;
  ~LockedFile() { close(); }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;

  // Opens the file, which is created if it is missing, instead of one that was open. Returns false
  // with the reason in error(), EINVAL for a FIFO or device, which is never waited for. Symbolic
  // links are not followed.
  [[nodiscard]] bool open(const std::string& path);
  // Tries once, without waiting. Requires: is_open().
  [[nodiscard]] Outcome lock(Mode mode = Mode::kExclusive);
  // Whether `path` still names this file: its former owner may have deleted or renamed it, and a
  // later process locks another file then. True if that cannot be found out.
  [[nodiscard]] bool is_at(const std::string& path) const;
  void close();

  [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }
  [[nodiscard]] int descriptor() const { return descriptor_; }
  [[nodiscard]] int error() const { return error_; }  // errno of the latest failure

 private:
  int descriptor_ = -1;
  int error_ = 0;
};

}  // namespace finetune
