// SPDX-License-Identifier: MIT
#include "data/line_reader.h"

#include <algorithm>
#include <utility>

#include "finetune/base/error.h"

namespace finetune {
namespace {

constexpr size_t kBufferSize = size_t{1} << 20;

size_t find_line_end(std::string_view text) {
  const size_t feed = text.find('\n');
  const size_t carriage = text.substr(0, feed).find('\r');
  return carriage != std::string_view::npos ? carriage : feed;
}

}  // namespace

LineReader::LineReader(const std::string& path)
    : LineReader(FileSystem::local().open(path), path) {}

LineReader::LineReader(std::unique_ptr<ReadableFile> file, std::string name)
    : LineReader(read_bytes(std::move(file), name), name) {}

LineReader::LineReader(std::unique_ptr<ByteSource> source, std::string name)
    : path_(std::move(name)), source_(std::move(source)), buffer_(kBufferSize, '\0') {}

bool LineReader::fill() {
  used_ = 0;
  filled_ = source_->read(buffer_.data(), buffer_.size());
  return filled_ > 0;
}

uint64_t LineReader::offset() const {
  const uint64_t read = source_->offset();
  return read - std::min<uint64_t>(read, filled_ - used_);
}

void LineReader::check_length(size_t length) const {
  if (length > kLongestLine) {
    throw Error(ErrorKind::kData, path_ + ":" + std::to_string(line_number_ + 1) +
                                      ": the line is longer than 16 MiB; split it into shorter "
                                      "lines, or check that this is a text file");
  }
}

bool LineReader::next(std::string_view& line) {
  carried_.clear();
  bool begun = false;
  while (true) {
    if (used_ == filled_ && !fill()) {
      if (!begun) return false;
      line = carried_;
      ++line_number_;
      return true;
    }
    if (after_return_) {
      after_return_ = false;
      if (buffer_[used_] == '\n') {
        ++used_;
        continue;
      }
    }
    const std::string_view rest(buffer_.data() + used_, filled_ - used_);
    const size_t end = find_line_end(rest);
    check_length(carried_.size() + std::min(end, rest.size()));
    if (end == std::string_view::npos) {
      carried_ += rest;
      begun = true;
      used_ = filled_;
      continue;
    }
    after_return_ = rest[end] == '\r';
    used_ += end + 1;
    ++line_number_;
    if (begun) {
      carried_ += rest.substr(0, end);
      line = carried_;
    } else {
      line = rest.substr(0, end);
    }
    return true;
  }
}

bool is_blank_json(std::string_view line) {
  return line.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace finetune
