// SPDX-License-Identifier: MIT
#include "data/byte_reader.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "finetune/base/error.h"

namespace finetune {
namespace {

constexpr size_t kBufferSize = size_t{1} << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

ByteReader::ByteReader(std::unique_ptr<ReadableFile> file) : file_(std::move(file)) {
  buffer_.resize(static_cast<size_t>(std::min<uint64_t>(kBufferSize, file_->size())));
  if (fill() && std::string_view(buffer_).substr(0, filled_).starts_with(kByteOrderMark)) {
    used_ = kByteOrderMark.size();
  }
}

bool ByteReader::fill() {
  const uint64_t left = file_->size() - offset_;
  used_ = 0;
  filled_ = static_cast<size_t>(std::min<uint64_t>(left, buffer_.size()));
  if (filled_ > 0) file_->read_at(offset_, buffer_.data(), filled_);
  offset_ += filled_;
  return filled_ > 0;
}

void MemoryFile::read_at(uint64_t offset, void* data, size_t size) const {
  FT_CHECK(offset <= content_.size() && size <= content_.size() - offset, "reads inside the file");
  std::copy_n(content_.data() + offset, size, static_cast<char*>(data));
}

}  // namespace finetune
