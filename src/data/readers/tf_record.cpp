// SPDX-License-Identifier: MIT
#include "finetune/data/tf_record.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "data/readers/tf_record_parts.h"
#include "finetune/base/crc32c.h"
#include "finetune/base/error.h"
#include "finetune/base/hash.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

using tf_record_parts::kChecksumBytes;
using tf_record_parts::kHeaderBytes;
using tf_record_parts::kLengthBytes;

template <class Unsigned>
std::string little_endian(Unsigned value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

template <class Unsigned>
Unsigned number_at(std::string_view bytes, size_t offset) {
  Unsigned value = 0;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

// Reads a file from its start in chunks, and skips unneeded ranges.
class FileWindow {
 public:
  explicit FileWindow(const ReadableFile& file) : file_(file) {}

  // Requires: a range inside the file; offsets that do not decrease; few bytes.
  std::string_view bytes(uint64_t offset, size_t size) {
    if (offset + size > begin_ + buffer_.size()) {
      begin_ = offset;
      buffer_.resize(static_cast<size_t>(std::min<uint64_t>(kBytes, file_.size() - offset)));
      file_.read_at(offset, buffer_.data(), buffer_.size());
    }
    return std::string_view(buffer_).substr(static_cast<size_t>(offset - begin_), size);
  }

 private:
  static constexpr uint64_t kBytes = 4096;

  const ReadableFile& file_;
  uint64_t begin_ = 0;
  std::string buffer_;
};

}  // namespace

namespace tf_record_parts {

std::string Position::text() const {
  return format_text("{}: record {} at byte {}", name, record + 1, offset);
}

void Position::fail(const std::string& what) const {
  throw Error(ErrorKind::kData,
              text() + " " + what + "; write the file again, or take it out of the list");
}

void Position::fail_cut_off(uint64_t length, uint64_t missing) const {
  fail(format_text("has {} bytes, but the file ends {} bytes before its end", length, missing));
}

uint64_t length_of(std::string_view header, const tf_record_parts::Position& position) {
  if (header.size() < kHeaderBytes) position.fail("is truncated within its length");
  if (number_at<uint32_t>(header, kLengthBytes) != masked_crc32c(header.substr(0, kLengthBytes))) {
    position.fail(
        "has a length that its checksum does not confirm: the file is damaged, or no TFRecord "
        "file");
  }
  const auto length = number_at<uint64_t>(header, 0);
  if (length > TfRecordFile::kMaxRecord) {
    position.fail(format_text("has {} bytes, more than the 64 MiB that are read", length));
  }
  return length;
}

void take_data(std::string& bytes, const tf_record_parts::Position& position) {
  const size_t length = bytes.size() - kChecksumBytes;
  const auto checksum = number_at<uint32_t>(bytes, length);
  bytes.resize(length);
  if (checksum == masked_crc32c(bytes)) return;
  throw Error(ErrorKind::kData, position.text() +
                                    " holds data that their checksum does not confirm: the file "
                                    "is damaged; write it again, or take it out of the list");
}

}  // namespace tf_record_parts

std::string tf_record(std::string_view data) {
  const std::string length = little_endian(uint64_t{data.size()});
  std::string record;
  record.reserve(data.size() + kHeaderBytes + kChecksumBytes);
  record += length;
  record += little_endian(masked_crc32c(length));
  record += data;
  record += little_endian(masked_crc32c(data));
  return record;
}

bool is_tf_record(std::string_view path) {
  path.remove_prefix(std::min(path.size(), path.find_last_of('/') + 1));
  for (const std::string_view ending : {".tfrecord", ".tfrecords"}) {
    if (path.ends_with(ending)) return true;
  }
  return path.find(".tfrecord-") != path.npos;
}

TfRecordFile::TfRecordFile(std::unique_ptr<ReadableFile> file, std::string name,
                           const std::function<void(double)>& progress)
    : file_(std::move(file)), name_(std::move(name)) {
  constexpr int64_t kRecordsBetweenPolls = 64;
  FileWindow window(*file_);
  Hasher hasher;
  const uint64_t end = file_->size();
  for (uint64_t offset = 0; offset < end;) {
    const tf_record_parts::Position position{.name = name_, .record = size(), .offset = offset};
    if (size() % kRecordsBetweenPolls == 0) {
      interrupt::throw_if_requested("reading TFRecord files");
      if (progress) progress(static_cast<double>(offset) / static_cast<double>(end));
    }
    const uint64_t left = end - offset;
    const std::string_view header =
        window.bytes(offset, static_cast<size_t>(std::min(left, kHeaderBytes)));
    const uint64_t length = tf_record_parts::length_of(header, position);
    const std::string length_bytes(header.substr(0, kLengthBytes));
    const uint64_t whole = kHeaderBytes + length + kChecksumBytes;
    if (whole > left) position.fail_cut_off(length, whole - left);
    hasher.update(length_bytes);
    hasher.update(window.bytes(offset + kHeaderBytes + length, kChecksumBytes));
    offsets_.push_back(offset);
    offset += whole;
  }
  fingerprint_ = hasher.hex();
}

std::string TfRecordFile::position(int64_t record) const {
  return tf_record_parts::Position{
      .name = name_, .record = record, .offset = offsets_[static_cast<size_t>(record)]}
      .text();
}

void TfRecordFile::read(int64_t record, std::string& data) const {
  FT_CHECK(record >= 0 && record < size(), "record index out of range");
  const uint64_t offset = offsets_[static_cast<size_t>(record)];
  const bool is_last = record + 1 == size();
  const uint64_t end = is_last ? file_->size() : offsets_[static_cast<size_t>(record) + 1];
  const uint64_t length = end - offset - kHeaderBytes - kChecksumBytes;
  data.resize(static_cast<size_t>(length + kChecksumBytes));
  file_->read_at(offset + kHeaderBytes, data.data(), data.size());
  tf_record_parts::take_data(data, {.name = name_, .record = record, .offset = offset});
}

}  // namespace finetune
