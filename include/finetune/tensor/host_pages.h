// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

namespace finetune {

// Host memory straight from the system, for copies that come and go as a whole: in pages of 2 MiB
// where the system has them, and returned to it at once. Its pages are taken when they are first
// touched, which may cost several times what copying into them does.
class HostPages {
 public:
  explicit HostPages(uint64_t bytes);
  ~HostPages();
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;

  [[nodiscard]] char* data() const { return data_; }  // nullptr: the system has none
  [[nodiscard]] uint64_t size() const { return bytes_; }
  // Takes all pages now.
  void populate();

 private:
  uint64_t bytes_;
  char* data_ = nullptr;
};

}  // namespace finetune
