// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/readers/records.h"
#include "finetune/data/permutation.h"
#include "finetune/data/rows.h"

namespace finetune {

// Consecutive rows of one file, not yet parsed: the unit of work for a thread.
struct RowBlock {
  struct Row {
    size_t begin = 0;
    size_t size = 0;
    int64_t line = 0;
    int64_t number = 0;  // in its file; 0 if the line identifies the row
    bool ended = false;  // a line of text that ends in a line break
  };
  std::string name;  // the file's, in messages
  size_t file = 0;   // index of the file
  FileKind kind = FileKind::kText;
  FileFormat format = {};  // of CSV and TSV
  std::shared_ptr<const std::vector<std::string>> header;
  std::shared_ptr<const ClassNames> classes;
  std::string text;
  std::vector<Row> rows;

  [[nodiscard]] std::string_view view(const Row& row) const {
    return std::string_view(text).substr(row.begin, row.size);
  }
  // Returns "file:line", "file:line, row n", or in formats without lines "file, row n".
  [[nodiscard]] std::string position(const Row& row) const;
  // Parses the row to an object. Throws Error(kData) naming its position.
  [[nodiscard]] nlohmann::ordered_json parse(const Row& row) const;
  // Whether a list of one value may be given as the value itself.
  [[nodiscard]] bool bare_lists() const { return kind == FileKind::kTfRecord; }
  // Whether values have types; otherwise all are text.
  [[nodiscard]] bool typed() const { return kind != FileKind::kCsv && kind != FileKind::kTsv; }
};

// The position of the next row in several files.
struct RowPosition {
  size_t file = 0;
  RecordPosition record = {};
  friend bool operator==(const RowPosition&, const RowPosition&) = default;
};

// Reads the rows of a range of several files in order.
class RowSource {
 public:
  // Throws as expand_files does; `key` names files and memory in messages.
  RowSource(const std::vector<std::string>& patterns, const RowOptions& options);

  static constexpr size_t kMostRows = 1000;  // per block

  // Returns false at the end. Requires: 1 <= most <= kMostRows.
  [[nodiscard]] bool next(RowBlock& block, size_t most = kMostRows);
  [[nodiscard]] double fraction() const;  // of all bytes
  [[nodiscard]] const std::vector<std::string>& files() const { return names_; }
  [[nodiscard]] const std::string& key() const { return key_; }
  [[nodiscard]] RowPosition position() const;
  // Continues at a position that position() returned. Requires: the range is all rows. Throws
  // Error(kData) if no row begins there, Interrupted if `polls`.
  void seek(const RowPosition& position, bool polls);
  // Sets a function that is called with each file's first row, before that row is returned.
  void on_first_row(std::function<void(const RowBlock&)> visit) { first_row_ = std::move(visit); }

 private:
  [[nodiscard]] std::unique_ptr<ReadableFile> open(size_t file) const;
  [[nodiscard]] bool open_next_file();
  void describe(RowBlock& block) const;
  void skip_row() const;
  [[nodiscard]] bool is_of_share(int64_t row) const;
  void learn(const Record& record);
  void repair(Record& record);

  std::string key_;
  std::vector<std::string> names_;
  std::optional<std::string> memory_;
  RowRange range_;
  std::optional<RowShare> share_;
  std::optional<Permutation> share_order_;
  std::function<void(double)> progress_;
  ReadingOptions reading_;
  bool replace_broken_utf8_;
  bool replaced_ = false;  // a row of this file was replaced
  std::string repaired_;   // the last replaced row
  std::function<void(const RowBlock&)> first_row_;

  size_t opened_ = 0;  // files
  std::unique_ptr<Records> records_;
  FileFormat format_;
  std::shared_ptr<const std::vector<std::string>> header_;
  std::shared_ptr<const ClassNames> classes_;
  bool learned_ = false;  // the first row of this file was passed to first_row_
  int64_t read_ = 0;      // rows of all files
  int64_t row_ = 0;       // of these, rows of the share
  int64_t row_of_file_ = 0;
  uint64_t bytes_after_ = 0;
  uint64_t total_bytes_ = 0;
};

}  // namespace finetune
