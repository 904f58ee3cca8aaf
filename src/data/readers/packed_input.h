// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/file_system.h"
#include "finetune/base/text.h"

namespace finetune {

// Reads a compressed file in chunks, and makes the error messages for corrupt ones.
class PackedInput {
 public:
  PackedInput(std::unique_ptr<ReadableFile> file, std::string name)
      : file_(std::move(file)), name_(std::move(name)) {
    buffer_.resize(static_cast<size_t>(std::min<uint64_t>(kBufferSize, file_->size())));
  }

  // The next chunk; empty at the end.
  [[nodiscard]] std::string_view next() {
    const uint64_t left = file_->size() - offset_;
    const auto size = static_cast<size_t>(std::min<uint64_t>(left, buffer_.size()));
    if (size > 0) file_->read_at(offset_, buffer_.data(), size);
    offset_ += size;
    return {buffer_.data(), size};
  }

  [[nodiscard]] uint64_t offset() const { return offset_; }
  [[nodiscard]] uint64_t size() const { return file_->size(); }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kData, "'" + name_ + "' " + what);
  }
  [[noreturn]] void fail_truncated(uint64_t unpacked) const {
    fail(
        format_text("ends in the middle of its packed data (after {} bytes of content): it was not "
                    "copied or written to its end; fetch or make it again",
                    unpacked));
  }

 private:
  static constexpr size_t kBufferSize = size_t{256} << 10;

  std::unique_ptr<ReadableFile> file_;
  std::string name_;
  std::string buffer_;
  uint64_t offset_ = 0;
};

}  // namespace finetune
