// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "data/readers/byte_source.h"

namespace finetune {

// A Python process that reads a Parquet or Arrow file with pyarrow and writes rows in the format
// that arrow_records.cpp reads. libarrow's C++ interface changes with every release; the Python
// interface is stable, so any installed pyarrow works.
class ArrowProcess final : public ByteSource {
 public:
  // Throws Error(kData), which names `path`, if no Python is found. `first`: the first row to read.
  ArrowProcess(const std::string& python, const std::string& path, const std::string& kind,
               int64_t first);
  ~ArrowProcess() override;  // kills the process
  ArrowProcess(const ArrowProcess&) = delete;
  ArrowProcess& operator=(const ArrowProcess&) = delete;

  [[nodiscard]] size_t read(void* data, size_t size) override;
  [[nodiscard]] uint64_t offset() const override { return offset_; }
  [[nodiscard]] uint64_t size() const override { return offset_; }

  // Returns how the process ended, in words. Requires: read() reached the end.
  [[nodiscard]] std::string ending();

 private:
  std::string path_;
  pid_t process_ = -1;
  int pipe_ = -1;
  uint64_t offset_ = 0;
};

// Returns the interpreters to try, in order: only FINETUNE_PYTHON if it is set; otherwise the one
// whose torch this program was built with, then python3.
[[nodiscard]] std::vector<std::string> arrow_interpreters();

}  // namespace finetune
