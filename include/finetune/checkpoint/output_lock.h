// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>

#include "finetune/checkpoint/lease.h"

namespace finetune::checkpoint {

// One writer per output folder, for as long as the object lives. On one machine the kernel's lock
// decides, so a process that died, however, yields at once; where another machine may hold the
// folder, or where there are no locks, the record does (see Lease). Throws Error(kBusy) with the
// owner where another has it. Makes the folder where it is missing.
class OutputLock {
 public:
  // `options` for its times and clock; its folder and file system are set here. Not through
  // FileSystem: a lock belongs to a descriptor.
  explicit OutputLock(const std::string& output_dir, LeaseOptions options = {});
  ~OutputLock();
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;

  // See Lease. Any thread.
  [[nodiscard]] bool still_ours() { return lease_->still_ours(); }
  [[nodiscard]] bool is_lost() const { return lease_->is_lost(); }
  void check() { lease_->check(); }

 private:
  // True where the kernel's lock is held, false where the file system has none.
  bool take_kernel_lock(const std::string& path, const LeaseOptions& options);

  int descriptor_ = -1;
  std::optional<Lease> lease_;
};

}  // namespace finetune::checkpoint
