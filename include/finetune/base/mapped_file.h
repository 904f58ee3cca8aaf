// SPDX-License-Identifier: MIT
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>

#include "finetune/base/bus_error.h"

namespace finetune {

// A file mapped for reading and shared by all processes that map it. Only for files that are
// replaced by renaming: if a mapped file is truncated, reading a missing page ends the process with
// a message (BusErrorGuard). For files of cache_dir.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);  // Throws Error(kIo).
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] const std::byte* data() const { return data_; }  // page-aligned
  [[nodiscard]] size_t size() const { return size_; }
  // Whether the file at `path` still has its mapped size; true for another file.
  [[nodiscard]] bool is_whole(const std::string& path) const;
  // Returns the pages to the system's page cache; they are mapped again when they are read.
  void release() const;

 private:
  void unmap();

  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::unique_ptr<BusErrorGuard> guard_;
};

}  // namespace finetune
