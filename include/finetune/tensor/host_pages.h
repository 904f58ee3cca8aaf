// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace finetune {

// Host memory mapped directly from the system, for large short-lived copies: in pages of 2 MiB if
// available, and returned to the system at once. Pages are allocated when they are first touched,
// which can cost several times as much as the copy.
class HostPages {
 public:
  explicit HostPages(uint64_t bytes);
  ~HostPages();
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;

  [[nodiscard]] char* data() const { return data_; }  // nullptr: allocation failed
  [[nodiscard]] uint64_t size() const { return bytes_; }
  // Allocates all pages now.
  void populate();

 private:
  uint64_t bytes_;
  char* data_ = nullptr;
};

}  // namespace finetune
