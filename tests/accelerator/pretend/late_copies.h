// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>

#include <mutex>
#include <vector>

namespace pretend {

// Copies between pinned memory and the device that the host has not waited for yet. A copy to the
// host arrives when the host waits; until then its target holds NaN. A copy to the device reads its
// source at any moment before the host waits: a source that the host overwrites before is an error.
// Thread-safe.
class LateCopies {
 public:
  static LateCopies& instance();

  // A copy whose host side is `host`, already carried out: its effect on a host target is taken
  // back until the host waits.
  void add(const at::Tensor& host, bool to_host);
  // The host waits for everything.
  void finish();
  // The device is about to read or write host memory: copies to the same memory come first.
  void finish_overlapping(const at::Tensor& host);

 private:
  struct Copy {
    at::Tensor host;
    std::vector<char> content;  // what the target gets, or what the source must still hold
    bool to_host = false;
  };
  static void finish(const Copy& copy);

  std::mutex mutex_;
  std::vector<Copy> copies_;
};

}  // namespace pretend
