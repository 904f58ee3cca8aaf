// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/json_row.h"
#include "data/line_reader.h"
#include "finetune/data/data_files.h"

namespace finetune {

// Consecutive rows of one file, as read: the unit that is handed to a thread.
struct RowBlock {
  struct Row {
    size_t begin = 0;
    size_t size = 0;
    int64_t line = 0;
  };
  std::string path;
  bool json = false;
  RowSchema schema;  // of JSON rows
  std::string text;
  std::vector<Row> rows;

  [[nodiscard]] std::string_view view(const Row& row) const {
    return std::string_view(text).substr(row.begin, row.size);
  }
  [[nodiscard]] std::string place(const Row& row) const {
    return path + ":" + std::to_string(row.line);
  }
};

// Reads the rows of several files in order, as far as they lie in a range.
class RowSource {
 public:
  RowSource(std::vector<std::string> files, RowRange range, std::optional<std::string> text_column);

  [[nodiscard]] bool next(RowBlock& block);  // false at the end
  [[nodiscard]] double fraction() const;     // of all bytes
  // Whether rows bring their ids, and with what; known once the first row was read.
  [[nodiscard]] const RowSchema& schema() const { return schema_; }

 private:
  bool open_next_file();
  void learn_schema(std::string_view line);

  std::vector<std::string> files_;
  RowRange range_;
  std::optional<std::string> text_column_;
  size_t next_file_ = 0;
  std::unique_ptr<LineReader> reader_;
  std::string path_;
  bool json_ = false;
  bool schema_known_ = false;  // of the current file
  bool first_row_ = true;      // of all files
  RowSchema schema_;
  int64_t row_ = 0;
  uint64_t bytes_behind_ = 0;
  uint64_t total_bytes_ = 0;
};

}  // namespace finetune
