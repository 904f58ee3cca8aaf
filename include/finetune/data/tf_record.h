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

// TensorFlow's file of records: of each the length (64 bits) with its checksum, the data with
// theirs; little-endian, masked CRC-32C.
[[nodiscard]] std::string tf_record(std::string_view data);

// A path that ends in .tfrecord, .tfrecords or .tfrecord-00000-of-00010.
[[nodiscard]] bool is_tf_record(std::string_view path);

// The records of one file, found by their lengths alone: the data are read and checked when they
// are asked for.
class TfRecordFile {
 public:
  static constexpr uint64_t kMaxRecord = uint64_t{64} << 20;

  // Reads every record's length and checksums. A length is used only if its own checksum is valid,
  // and nothing is allocated before. Throws Error(kData) with file, record (from 1) and byte for
  // damage, a truncated record, or one of more than 64 MiB, and Interrupted. `progress` receives
  // the fraction of the file that was read.
  TfRecordFile(std::unique_ptr<ReadableFile> file, std::string name,
               const std::function<void(double)>& progress = {});

  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(offsets_.size()); }
  // Data of a record. Safe to call from several threads. Throws Error(kData) if the checksum does
  // not match.
  [[nodiscard]] std::string read(int64_t record) const {
    std::string data;
    read(record, data);
    return data;
  }
  // Overwrites `data`, reusing its memory.
  void read(int64_t record, std::string& data) const;
  // "file: record 3 at byte 120"
  [[nodiscard]] std::string place(int64_t record) const;
  // Lengths and checksums of all records: what is in them.
  [[nodiscard]] const std::string& fingerprint() const { return fingerprint_; }

 private:
  std::unique_ptr<ReadableFile> file_;
  std::string name_;
  std::vector<uint64_t> offsets_;  // where records begin
  std::string fingerprint_;
};

}  // namespace finetune
