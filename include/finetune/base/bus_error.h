// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

namespace finetune {

// While the object exists, an access to an unreadable page of this memory (the mapped file was
// truncated, or the disk fails) ends the process with a message and kExitFailed instead of SIGBUS.
// For other addresses the previous handler runs.
class BusErrorGuard {
 public:
  BusErrorGuard(const void* begin, size_t size);
  ~BusErrorGuard();
  BusErrorGuard(const BusErrorGuard&) = delete;
  BusErrorGuard& operator=(const BusErrorGuard&) = delete;

 private:
  struct Range;
  friend void note_bus_error(const void* address);
  Range* range_ = nullptr;
};

}  // namespace finetune
