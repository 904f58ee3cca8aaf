// SPDX-License-Identifier: MIT
#include "data/readers/line_reader.h"

#include <algorithm>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

constexpr size_t kLineBufferSize = size_t{1} << 20;

}  // namespace

LineReader::LineReader(const std::string& path)
    : LineReader(FileSystem::local().open(path), path) {}

LineReader::LineReader(std::unique_ptr<ReadableFile> file, std::string name)
    : LineReader(read_bytes(std::move(file), name), name) {}

LineReader::LineReader(std::unique_ptr<ByteSource> source, std::string name)
    : path_(std::move(name)), source_(std::move(source)), buffer_(kLineBufferSize, '\0') {}

bool LineReader::fill() {
  used_ = 0;
  filled_ = source_->read(buffer_.data(), buffer_.size());
  delivered_ += filled_;
  feed_ = find_in_buffer('\n', filled_);
  return filled_ > 0;
}

size_t LineReader::find_in_buffer(char byte, size_t end) const {
  return std::min(end, std::string_view(buffer_.data(), end).find(byte, used_));
}

// The next "\n" is searched once, not again for every line that ends in "\r" before it: the time is
// linear in the bytes for any line ends.
size_t LineReader::find_line_end() {
  if (feed_ < used_) feed_ = find_in_buffer('\n', filled_);
  return find_in_buffer('\r', feed_);
}

LineReader::Position LineReader::position() const {
  return {.offset = delivered_ - (filled_ - used_),
          .line = line_number_,
          .after_return = after_return_};
}

void LineReader::seek(const Position& position, bool polls) {
  const bool is_in_buffer =
      position.offset <= delivered_ && position.offset >= delivered_ - filled_;
  if (!is_in_buffer && source_->seek(position.offset)) {
    delivered_ = position.offset;
    used_ = filled_ = 0;
  } else {
    FT_CHECK(position.offset >= delivered_ - filled_, "packed content is read forwards");
    while (delivered_ < position.offset) {
      if (polls) interrupt::throw_if_requested("reading '" + path_ + "' up to where it was left");
      if (!fill()) {
        throw Error(ErrorKind::kData, "'" + path_ +
                                          "' is shorter than it was; put it back, or start over "
                                          "with --restart");
      }
    }
    used_ = filled_ - static_cast<size_t>(delivered_ - position.offset);
  }
  feed_ = find_in_buffer('\n', filled_);
  line_number_ = position.line;
  after_return_ = position.after_return;
}

uint64_t LineReader::offset() const {
  const uint64_t read = source_->offset();
  return read - std::min<uint64_t>(read, filled_ - used_);
}

void LineReader::check_length(size_t length) const {
  if (length > kLongestLine) {
    throw Error(ErrorKind::kData,
                format_text("{}:{}: the line is longer than 16 MiB; split it into shorter lines, "
                            "or check that this is a text file",
                            path_, line_number_ + 1));
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
      line_ended_ = false;
      return true;
    }
    if (after_return_) {
      after_return_ = false;
      if (buffer_[used_] == '\n') {
        ++used_;
        continue;
      }
    }
    const size_t end = find_line_end();
    const std::string_view found(buffer_.data() + used_, end - used_);
    check_length(carried_.size() + found.size());
    if (end == filled_) {
      carried_ += found;
      begun = true;
      used_ = filled_;
      continue;
    }
    after_return_ = buffer_[end] == '\r';
    used_ = end + 1;
    ++line_number_;
    line_ended_ = true;
    if (begun) {
      carried_ += found;
      line = carried_;
    } else {
      line = found;
    }
    return true;
  }
}

bool is_blank_json(std::string_view line) {
  return line.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace finetune
