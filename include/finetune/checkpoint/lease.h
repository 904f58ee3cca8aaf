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
  // A lock of the kernel on a file system that no other machine sees is held already, so that
  // whoever wrote a record under this kernel is gone.
  bool kernel_lock = false;
  double heartbeat_seconds = 10;  // 0: none but renew()
  double patience_seconds = 45;   // a silent owner elsewhere is taken for dead
  Clock* clock = &Clock::steady();
};

// One writer per folder by a record with a heartbeat: who holds it writes a growing number there,
// who wants it watches the number. No two machines' clocks are compared. An owner of this machine
// that is dead, however its process id is used now, yields at once; one elsewhere when its record
// has not changed for the patience.
//
// A holder that was silent for longer (stopped, or cut off) may have lost the folder to another:
// before anything is committed there, still_ours() is to be asked.
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
  // One beat of the heart; failures are left to the next.
  void renew();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace finetune::checkpoint
