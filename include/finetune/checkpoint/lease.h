// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include "finetune/base/clock.h"
#include "finetune/base/file_system.h"

namespace finetune::checkpoint {

struct LeaseOptions {
  std::shared_ptr<FileSystem> files = {};
  std::string folder = {};         // its kLockFile holds the record
  std::string shown = {};          // what messages call the folder; empty: its path
  std::string key = "output_dir";  // the configuration key that names it
  // This process owns the kernel's lock on a file system that no other machine sees, so the process
  // that wrote a record under this kernel is dead.
  bool kernel_lock = false;
  double heartbeat_seconds = 10;  // 0: none but renew()
  double patience_seconds = 45;   // after which a silent remote owner is treated as dead
  Clock* clock = &Clock::steady();
};

// One writer per folder, by a record with a heartbeat counter: the owner increments it, contenders
// poll it. Clocks of machines are not compared. A dead owner on this machine yields at once, even
// if its process id was reused; a remote one when its record has not changed for the timeout.
//
// An owner that was silent for longer (stopped, or cut off) may have lost the folder to another:
// call still_ours() before every commit.
class Lease {
 public:
  // Throws Error(kBusy) with the owner where the folder is held, Error(kIo) where the record cannot
  // be read or written, Interrupted where a stop is asked for meanwhile. Requires: the folder.
  explicit Lease(LeaseOptions options);
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // Reads the record. A record that cannot be read is no other's. Any thread.
  [[nodiscard]] bool still_ours();
  // As last seen, by the heartbeat too; costs nothing. Any thread.
  [[nodiscard]] bool is_lost() const;
  // Throws Error(kBusy) with the new owner where the folder is lost.
  void check();
  // Writes one heartbeat; after a failure the next one tries again.
  void renew();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace finetune::checkpoint
