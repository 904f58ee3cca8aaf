// SPDX-License-Identifier: MIT
#include <algorithm>
#include <utility>

#include "data/readers/byte_source.h"
#include "data/readers/records.h"
#include "data/readers/tf_record_parts.h"

namespace finetune {
namespace {

using tf_record_parts::kChecksumBytes;
using tf_record_parts::kHeaderBytes;

// Reads a file sequentially, compressed or not. Each record is a tf.train.Example, which tf_row.h
// parses.
class TfRecords final : public Records {
 public:
  TfRecords(std::unique_ptr<ReadableFile> file, const std::string& name)
      : name_(name), source_(read_bytes(std::move(file), name)) {}

  [[nodiscard]] bool next(Record& record) override {
    const tf_record_parts::Position position{.name = name_, .record = row_, .offset = unpacked_};
    data_.clear();
    if (take(kHeaderBytes) == 0) return false;
    const uint64_t length = tf_record_parts::length_of(data_, position);
    data_.clear();
    const uint64_t wanted = length + kChecksumBytes;
    const uint64_t taken = take(wanted);
    if (taken < wanted) position.fail_cut_off(length, wanted - taken);
    tf_record_parts::take_data(data_, position);
    record = {.text = data_, .line = 0, .number = ++row_};
    return true;
  }
  [[nodiscard]] uint64_t offset() const override {
    const uint64_t read = source_->offset();
    return read - std::min<uint64_t>(read, filled_ - used_);  // approximate if it is compressed
  }
  [[nodiscard]] uint64_t size() const override { return source_->size(); }

 private:
  // Appends up to `wanted` bytes to data_ and returns their number. Memory grows as they are read,
  // because the file may be shorter than a length claims.
  uint64_t take(uint64_t wanted) {
    uint64_t taken = 0;
    while (taken < wanted && (used_ < filled_ || fill())) {
      const auto count = static_cast<size_t>(std::min<uint64_t>(wanted - taken, filled_ - used_));
      data_.append(buffer_, used_, count);
      used_ += count;
      taken += count;
    }
    unpacked_ += taken;
    return taken;
  }

  bool fill() {
    used_ = 0;
    filled_ = source_->read(buffer_.data(), buffer_.size());
    return filled_ > 0;
  }

  static constexpr size_t kBufferSize = size_t{1} << 20;

  std::string name_;
  std::unique_ptr<ByteSource> source_;
  std::string buffer_ = std::string(kBufferSize, '\0');
  size_t used_ = 0;
  size_t filled_ = 0;
  std::string data_;
  int64_t row_ = 0;
  uint64_t unpacked_ = 0;  // decompressed bytes read
};

}  // namespace

std::unique_ptr<Records> read_tf_records(std::unique_ptr<ReadableFile> file,
                                         const std::string& name) {
  return std::make_unique<TfRecords>(std::move(file), name);
}

}  // namespace finetune
