// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "finetune/base/file_system.h"

namespace finetune {

// Encodes a record of TensorFlow's TFRecord format: length (64 bits) and its checksum, data and its
// checksum; little-endian, masked CRC-32C.
[[nodiscard]] std::string tf_record(std::string_view data);

// Whether a path ends in .tfrecord, .tfrecords or .tfrecord-00000-of-00010.
[[nodiscard]] bool is_tf_record(std::string_view path);

// The records of one file. Only their offsets are in memory; data are read and checked on demand.
class TfRecordFile {
 public:
  static constexpr uint64_t kMaxRecord = uint64_t{64} << 20;

  // Reads every record's length and checksums. A length is used only if its checksum is valid,
  // before anything is allocated. Throws Error(kData) with file, record (from 1) and byte for
  // damage, a truncated record, or one above 64 MiB, and Interrupted. `progress` receives the
  // fraction of the file that was read.
  TfRecordFile(std::unique_ptr<ReadableFile> file, std::string name,
               const std::function<void(double)>& progress = {});

  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(offsets_.size()); }
  // Returns the data of a record. Thread-safe. Throws Error(kData) if the checksum does not match.
  [[nodiscard]] std::string read(int64_t record) const {
    std::string data;
    read(record, data);
    return data;
  }
  // Overwrites `data`, reusing its memory.
  void read(int64_t record, std::string& data) const;
  // Returns "file: record 3 at byte 120".
  [[nodiscard]] std::string position(int64_t record) const;
  // Returns a hash of the lengths and checksums of all records.
  [[nodiscard]] const std::string& fingerprint() const { return fingerprint_; }

 private:
  std::unique_ptr<ReadableFile> file_;
  std::string name_;
  std::vector<uint64_t> offsets_;  // of the records
  std::string fingerprint_;
};

}  // namespace finetune
