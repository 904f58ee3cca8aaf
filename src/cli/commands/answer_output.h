// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "finetune/base/file_system.h"
#include "finetune/base/locked_file.h"

namespace finetune::cli {

// Where predictions go: standard output as JSON lines, or a file as JSON lines (.jsonl, .ndjson) or
// as a table (.csv, .tsv). A table has a line for each answer of a row: the row's number from 1,
// then the answer's fields; fields that are lists are written as JSON.
//
// Until all rows are answered a file is called PATH.partial, and PATH.partial.json records how far
// it is, so that the same command resumes what was interrupted or killed.
class AnswerOutput {
 public:
  using Json = nlohmann::ordered_json;

  // No path: standard output. `identity`: what the answers depend on; a partial file of another
  // identity is started again. Empty: the answers cannot be resumed. Throws Error(kUsage) for
  // another ending, Error(kBusy) where another process is writing the file, Error(kIo).
  explicit AnswerOutput(const std::optional<std::string>& path, std::string identity = "");
  // Removes what was written so far unless finish() or keep() was called.
  ~AnswerOutput();
  AnswerOutput(const AnswerOutput&) = delete;
  AnswerOutput& operator=(const AnswerOutput&) = delete;

  // Rows that were answered, by an earlier command too: the next write() has those after them.
  [[nodiscard]] int64_t rows() const { return row_; }
  // The answers to the next rows. Throws Error(kIo).
  void write(const std::vector<Json>& answers);
  // Renames the temporary file to its final name.
  void finish();
  // Keeps what was written for the next command where it can be resumed. Never throws.
  void keep();
  [[nodiscard]] bool is_file() const { return file_ != nullptr; }

 private:
  [[nodiscard]] bool lock(const std::string& path);
  void add_lines(const Json& answer);
  void add_line(const Json& answer);
  void open_partial();
  [[nodiscard]] bool read_record();
  void write_record();
  [[nodiscard]] std::string record_path() const { return temporary_ + ".json"; }

  std::string path_;
  std::string identity_;
  std::string temporary_;
  LockedFile lock_;
  std::unique_ptr<WritableFile> file_;  // null: standard output
  bool is_kept_ = false;
  char separator_ = '\0';             // of a table
  std::vector<std::string> columns_;  // of a table; taken from the first answer
  int64_t row_ = 0;
  uint64_t bytes_ = 0;         // of the file
  int64_t recorded_rows_ = 0;  // in the record
  double recorded_ = 0;        // when, in seconds; 0: not yet
  std::string text_;           // that is still to be written
};

}  // namespace finetune::cli
