// SPDX-License-Identifier: MIT
#include "tokenizer/training/text_lines.h"

#include <algorithm>

#include "finetune/base/error.h"
#include "finetune/base/text.h"
#include "finetune/base/utf8.h"

namespace finetune::tokenizer {
namespace {

constexpr std::string_view kReserved = "\xE2\x96\x85";
constexpr uint64_t kBlock = uint64_t{1} << 20;

}  // namespace

TextLines::TextLines(const std::vector<std::string>& paths, size_t max_line_bytes,
                     Progress progress)
    : paths_(paths), max_line_bytes_(max_line_bytes), progress_(std::move(progress)) {
  for (const std::string& path : paths_) total_ += static_cast<int64_t>(open(path)->size());
}

std::unique_ptr<ReadableFile> TextLines::open(const std::string& path) {
  try {
    return FileSystem::local().open(path);
  } catch (const Error& error) {
    throw Error(ErrorKind::kData, error.what());
  }
}

bool TextLines::read_block() {
  if (!open_) open_ = open(paths_[file_]);
  const ReadableFile& file = *open_;
  block_.resize(std::min(kBlock, file.size() - offset_));
  at_ = 0;
  if (block_.empty()) return false;
  file.read_at(offset_, block_.data(), block_.size());
  offset_ += block_.size();
  done_ += static_cast<int64_t>(block_.size());
  if (progress_) progress_(done_, total_);
  return true;
}

// Reads the next line of the current file without its end; returns false at the file's end.
bool TextLines::read_line() {
  line_.clear();
  too_long_ = false;
  bool any = false;
  while (at_ < block_.size() || read_block()) {
    any = true;
    const size_t end = std::min(block_.find('\n', at_), block_.size());
    if (line_.size() + (end - at_) > max_line_bytes_) too_long_ = true;
    if (!too_long_) line_.append(block_, at_, end - at_);
    at_ = end + 1;
    if (end < block_.size()) break;
  }
  if (any) ++number_;
  return any;
}

bool TextLines::is_wanted() {
  if (too_long_) {
    if (counts_.too_long++ == 0) {
      counts_.first_too_long = format_text("{}:{}", paths_[file_], number_);
    }
    return false;
  }
  if (utf8::find_invalid(line_) != std::string::npos) {
    throw Error(ErrorKind::kData,
                format_text("{}:{}: is not valid UTF-8; convert the file or drop the line",
                            paths_[file_], number_));
  }
  if (line_.find(kReserved) != std::string::npos) {
    ++counts_.reserved;
    return false;
  }
  return line_.find_first_not_of(" \t\r\v\f") != std::string::npos;
}

bool TextLines::next() {
  for (; file_ < paths_.size(); ++file_) {
    while (read_line()) {
      if (!is_wanted()) continue;
      ++counts_.lines;
      return true;
    }
    open_.reset();
    offset_ = 0;
    number_ = 0;
    block_.clear();
    at_ = 0;
  }
  return false;
}

}  // namespace finetune::tokenizer
