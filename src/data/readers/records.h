// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/readers/file_format.h"
#include "finetune/base/file_system.h"
#include "finetune/data/data_files.h"

namespace finetune {

// One row as written in its file.
struct Record {
  std::string_view text;  // valid until the next one is read
  int64_t line = 0;       // line of its start, from 1
  int64_t number =
      0;  // of the row in its file, from 1, in formats where a line does not identify a row
  bool ended = false;  // a line of text that ends in a line break
};

// Names of the classes of columns, in the order of their numbers (ClassLabel of `datasets`).
using ClassNames = std::unordered_map<std::string, std::vector<std::string>>;

// The start of the next row of a file.
struct RecordPosition {
  int64_t records = 0;  // number of records before it
  // For formats with one row per line: LineReader::Place.
  uint64_t offset = 0;
  int64_t line = 0;
  bool after_return = false;
  friend bool operator==(const RecordPosition&, const RecordPosition&) = default;
};

// The rows of a file in order. Content is parsed only as far as needed to separate rows.
class Records {
 public:
  virtual ~Records() = default;
  // Returns false at the end. Throws Error(kData) with file and line if a row is unterminated,
  // Error(kIo).
  [[nodiscard]] virtual bool next(Record& record) = 0;
  [[nodiscard]] virtual uint64_t offset() const = 0;  // bytes read
  [[nodiscard]] virtual uint64_t size() const = 0;
  // Column names from the file's header, if it has one; known once the file is open.
  [[nodiscard]] virtual const std::vector<std::string>& header() const;
  // Classes that the file's schema names; known once the file is open.
  [[nodiscard]] virtual const ClassNames& classes() const;

  // Returns the position without the number of records, which the caller counts.
  [[nodiscard]] virtual RecordPosition position() const { return {}; }
  // Continues at a position of the same content, not before the current one; false if the format
  // cannot seek. Throws Interrupted if `polls`.
  [[nodiscard]] virtual bool seek(const RecordPosition&, [[maybe_unused]] bool polls) {
    return false;
  }
};

// `name` is the file's name in messages.
[[nodiscard]] std::unique_ptr<Records> read_records(std::unique_ptr<ReadableFile> file,
                                                    const std::string& name,
                                                    const FileFormat& format);

// Implementations, each in a separate source file.
[[nodiscard]] std::unique_ptr<Records> read_json_records(std::unique_ptr<ReadableFile> file,
                                                         const std::string& name);
[[nodiscard]] std::unique_ptr<Records> read_arrow_records(std::unique_ptr<ReadableFile> file,
                                                          const std::string& name, FileKind kind);
[[nodiscard]] std::unique_ptr<Records> read_tf_records(std::unique_ptr<ReadableFile> file,
                                                       const std::string& name);
[[nodiscard]] std::unique_ptr<Records> read_csv_records(std::unique_ptr<ReadableFile> file,
                                                        const std::string& name,
                                                        const FileFormat& format);

// Splits a record of read_csv_records into fields. Throws Error(kData) with `position` as prefix.
[[nodiscard]] std::vector<std::string> split_fields(std::string_view record,
                                                    const FileFormat& format,
                                                    const std::string& position);

}  // namespace finetune
