// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

namespace finetune {

// While it lives, a page of this memory that cannot be read (somebody has cut the mapped file, or
// the disk fails) ends the process with a message and kExitFailed in place of a SIGBUS. Elsewhere
// the signal does what it did before.
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
