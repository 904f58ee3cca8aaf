// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "finetune/data/tf_record.h"

// The parts of a record, for random access (tf_record) and sequential reading (tf_records).
namespace finetune::tf_record_parts {

inline constexpr uint64_t kLengthBytes = 8;
inline constexpr uint64_t kChecksumBytes = 4;
inline constexpr uint64_t kHeaderBytes = kLengthBytes + kChecksumBytes;

struct Position {
  const std::string& name;
  int64_t record = 0;                      // from 0
  uint64_t offset = 0;                     // of its first byte
  [[nodiscard]] std::string text() const;  // "file: record 3 at byte 120"
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void fail_cut_off(uint64_t length, uint64_t missing) const;
};

// Returns the length of the data from the header. Throws Error(kData) if the header is truncated or
// corrupt, or if a record is longer than TfRecordFile::kMaxRecord.
[[nodiscard]] uint64_t length_of(std::string_view header, const Position& position);

// Verifies the bytes after a header and removes the checksum at their end. Throws Error(kData) if
// it does not match. Requires: a checksum at the end.
void take_data(std::string& bytes, const Position& position);

}  // namespace finetune::tf_record_parts
