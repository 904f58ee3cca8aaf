// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/readers/byte_source.h"
#include "finetune/base/file_system.h"

namespace finetune {

// Reads a file byte by byte, skipping a byte order mark at its start.
class ByteReader {
 public:
  static constexpr int kEnd = -1;

  // `name` is the file's name in messages; compressed files are decompressed (byte_source.h).
  ByteReader(std::unique_ptr<ReadableFile> file, const std::string& name);

  [[nodiscard]] int peek() {
    if (used_ == filled_ && !fill()) return kEnd;
    return static_cast<unsigned char>(buffer_[used_]);
  }
  int take() {
    const int byte = peek();
    if (byte == kEnd) return kEnd;
    ++used_;
    // "\n", "\r\n" and a lone "\r" each end a line.
    if (byte == '\r' || (byte == '\n' && !after_return_)) ++line_;
    after_return_ = byte == '\r';
    return byte;
  }

  [[nodiscard]] int64_t line() const { return line_; }  // of the next byte, from 1
  // Position in the file; approximate if it is compressed.
  [[nodiscard]] uint64_t offset() const;
  [[nodiscard]] uint64_t size() const { return source_->size(); }

 private:
  bool fill();

  std::unique_ptr<ByteSource> source_;
  std::string buffer_;
  size_t used_ = 0;
  size_t filled_ = 0;
  int64_t line_ = 1;
  bool after_return_ = false;
};

// A file whose content is in memory.
class MemoryFile final : public ReadableFile {
 public:
  explicit MemoryFile(std::string content) : content_(std::move(content)) {}
  [[nodiscard]] uint64_t size() const override { return content_.size(); }
  void read_at(uint64_t offset, void* data, size_t size) const override;

 private:
  std::string content_;
};

}  // namespace finetune
