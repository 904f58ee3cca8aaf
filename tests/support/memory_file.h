// SPDX-License-Identifier: MIT
#pragma once

#include <cstring>
#include <string>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"

namespace finetune::testing {

// A file in memory, for readers of hostile input.
class MemoryFile final : public ReadableFile {
 public:
  explicit MemoryFile(std::string content) : content_(std::move(content)) {}

  [[nodiscard]] uint64_t size() const override { return content_.size(); }
  void read_at(uint64_t offset, void* data, size_t size) const override {
    if (offset > content_.size() || size > content_.size() - offset) {
      throw Error(ErrorKind::kIo, "read beyond the end");
    }
    std::memcpy(data, content_.data() + offset, size);
  }

 private:
  std::string content_;
};

// Collects written bytes.
class MemoryWriter final : public WritableFile {
 public:
  using WritableFile::write;
  void write(const void* data, size_t size) override {
    content_.append(static_cast<const char*>(data), size);
  }
  void sync() override {}
  void close() override {}

  [[nodiscard]] const std::string& content() const { return content_; }

 private:
  std::string content_;
};

}  // namespace finetune::testing
