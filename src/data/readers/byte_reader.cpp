// SPDX-License-Identifier: MIT
#include "data/readers/byte_reader.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "finetune/base/error.h"

namespace finetune {
namespace {

constexpr size_t kBufferSize = size_t{1} << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

ByteReader::ByteReader(std::unique_ptr<ReadableFile> file, const std::string& name)
    : source_(read_bytes(std::move(file), name)), buffer_(kBufferSize, '\0') {
  if (fill() && std::string_view(buffer_).substr(0, filled_).starts_with(kByteOrderMark)) {
    used_ = kByteOrderMark.size();
  }
}

bool ByteReader::fill() {
  used_ = 0;
  filled_ = source_->read(buffer_.data(), buffer_.size());
  return filled_ > 0;
}

uint64_t ByteReader::offset() const {
  const uint64_t read = source_->offset();
  return read - std::min<uint64_t>(read, filled_ - used_);
}

void MemoryFile::read_at(uint64_t offset, void* data, size_t size) const {
  FT_CHECK(offset <= content_.size() && size <= content_.size() - offset, "reads inside the file");
  std::copy_n(content_.data() + offset, size, static_cast<char*>(data));
}

}  // namespace finetune
