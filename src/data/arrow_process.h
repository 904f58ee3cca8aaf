// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "data/byte_source.h"

namespace finetune {

// A Python process that reads a Parquet or Arrow file with pyarrow and writes what
// arrow_records.cpp reads. libarrow's C++ interface changes with every release, Python's does not,
// so that whatever pyarrow is installed serves.
class ArrowProcess final : public ByteSource {
 public:
  // Throws Error(kData), which names `path`, where no Python is found.
  // `first`: the row to begin with.
  ArrowProcess(const std::string& python, const std::string& path, const std::string& kind,
               int64_t first);
  ~ArrowProcess() override;  // ends the process
  ArrowProcess(const ArrowProcess&) = delete;
  ArrowProcess& operator=(const ArrowProcess&) = delete;

  [[nodiscard]] size_t read(void* data, size_t size) override;
  [[nodiscard]] uint64_t offset() const override { return offset_; }
  [[nodiscard]] uint64_t size() const override { return offset_; }

  // Requires: read() came to the end. How the process ended, in words.
  [[nodiscard]] std::string ending();

 private:
  std::string path_;
  pid_t process_ = -1;
  int pipe_ = -1;
  uint64_t offset_ = 0;
};

// The interpreters to ask, in order: the one that FINETUNE_PYTHON names and no other, else the one
// whose torch this program was built with, then python3.
[[nodiscard]] std::vector<std::string> arrow_interpreters();

}  // namespace finetune
