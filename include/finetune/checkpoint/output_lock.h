// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "finetune/base/locked_file.h"
#include "finetune/checkpoint/lease.h"

namespace finetune::checkpoint {

// Ensures one writer per output folder while the object exists. On one machine the kernel's lock
// decides, so the lock of a dead process is free at once. If another machine may own the folder, or
// the file system has no locks, the record decides (see Lease). Throws Error(kBusy) naming the
// owner if the folder is owned. Creates the folder if it is missing.
class OutputLock {
 public:
  // `options` gives timing and clock; folder and file system are set here. The lock does not go
  // through FileSystem, because it belongs to a file descriptor.
  explicit OutputLock(const std::string& output_dir, LeaseOptions options = {});
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

  // See Lease. Thread-safe.
  [[nodiscard]] bool still_ours() { return lease_->still_ours(); }
  [[nodiscard]] bool is_lost() const { return lease_->is_lost(); }
  void check() { lease_->check(); }

 private:
  // Returns true if the kernel's lock was acquired, false if the file system has no locks.
  bool take_kernel_lock(const std::string& path, const LeaseOptions& options);

  LockedFile file_;
  std::optional<Lease> lease_;  // last member: its record goes before another process can lock
};

}  // namespace finetune::checkpoint
