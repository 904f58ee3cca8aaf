// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include "finetune/base/clock.h"
#include "finetune/base/file_system.h"

namespace finetune::checkpoint {

struct LeaseOptions {
  std::shared_ptr<FileSystem> files = {};
  std::string folder = {};         // contains the record, kLockFile
  std::string shown = {};          // name of the folder in messages; empty: its path
  std::string key = "output_dir";  // the configuration key that names it
  // This process owns the kernel's lock on a file system that no other machine mounts, so the
  // process that wrote a record under this kernel is dead.
  bool kernel_lock = false;
  double heartbeat_seconds = 10;  // 0: only renew() writes heartbeats
  double timeout_seconds = 45;    // timeout after which a silent remote owner is treated as dead
  // For so long a record that was read or written counts as unchanged. Nobody takes a folder over
  // sooner than timeout_seconds after its last heartbeat, which must be much longer.
  double trust_seconds = 0;
  Clock* clock = &Clock::steady();
};

// Ensures a single writer per folder by a record with a heartbeat counter: the owner increments it,
// contenders poll it. Clocks of different machines are not compared. A lease is taken over from a
// dead owner on this machine at once, even if its process id was reused; from a remote owner when
// its record has not changed for the timeout.
//
// An owner that was silent for longer (suspended or disconnected) may have lost the folder: call
// still_ours() before every commit.
class Lease {
 public:
  // Throws Error(kBusy) naming the owner if the folder is owned, Error(kIo) if the record cannot be
  // read or written, Interrupted if a stop is requested meanwhile. Requires: the folder exists.
  explicit Lease(LeaseOptions options);
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // Reads the record and returns whether this process still owns the folder. An unreadable record
  // counts as ours. Thread-safe.
  [[nodiscard]] bool still_ours();
  // Returns the result of the last check, including the heartbeat's; free of I/O. Thread-safe.
  [[nodiscard]] bool is_lost() const;
  // Throws Error(kBusy) naming the new owner if the folder is lost.
  void check();
  // Writes one heartbeat; a failure is retried with the next one.
  void renew();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace finetune::checkpoint
