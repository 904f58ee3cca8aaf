// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>

namespace finetune {

// A whole file, mapped for reading and shared by all processes that map it. For files that are only
// ever replaced by renaming: one that is cut short while it is mapped ends the process (SIGBUS).
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

 private:
  void unmap();

  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace finetune
