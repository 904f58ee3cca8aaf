// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>

#include <mutex>
#include <vector>

namespace pretend {

// Copies between pinned memory and the device that the host has not waited for. A copy to the host
// arrives when the host waits; until then its target contains NaN. A copy to the device reads its
// source at any moment before the host waits, so overwriting the source earlier is an error.
// Thread-safe.
class LateCopies {
 public:
  static LateCopies& instance();

  // Registers a copy that was already carried out. If it goes to the host, its effect on `host` is
  // undone until the host waits.
  void add(const at::Tensor& host, bool to_host);
  // Completes all copies, because the host waits.
  void finish();
  // Completes copies that overlap this memory, because the device is about to read or write it.
  void finish_overlapping(const at::Tensor& host);

 private:
  struct Copy {
    at::Tensor host;
    // of the target after the copy; for a source, what it must still contain
    std::vector<char> content;
    bool to_host = false;
  };
  static void finish(const Copy& copy);

  std::mutex mutex_;
  std::vector<Copy> copies_;
};

}  // namespace pretend
