// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace pretend {

// Counts of what the device did since the process started, written when the process exits as
// <pid>.json into the folder PRETEND_ACCELERATOR_REPORT. Thread-safe.
class Counts {
 public:
  static Counts& instance();

  // Counts a kernel or copy, and the bytes that it reads and writes. `types`: of its tensors, for
  // operators whose support on a GPU depends on them.
  void add_kernel(const std::string& name, int64_t read, int64_t written,
                  const std::set<std::string>& types = {});
  // Counts a wait of the host for the device.
  void add_wait(const std::string& reason);
  // Writes the report, if one was asked for and the device was used.
  void write();

 private:
  struct Kernel {
    int64_t calls = 0;
    int64_t read = 0;
    int64_t written = 0;
    std::set<std::string> types = {};
  };

  Counts();

  std::mutex mutex_;
  std::map<std::string, Kernel> kernels_;
  std::map<std::string, int64_t> waits_;
};

}  // namespace pretend
