// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "finetune/base/file_system.h"

namespace finetune::cli {

// Writes predictions to standard output as JSON lines, or to a file as JSON lines (.jsonl, .ndjson)
// or as a table (.csv, .tsv). A table has a line for each answer of a row: the row's number from 1,
// then the answer's fields; lists are written as JSON.
class AnswerOutput {
 public:
  using Json = nlohmann::ordered_json;

  // No path: standard output. Throws Error(kUsage) for another ending, Error(kIo).
  explicit AnswerOutput(const std::optional<std::string>& path);
  // Deletes the output unless finish() was called.
  ~AnswerOutput();
  AnswerOutput(const AnswerOutput&) = delete;
  AnswerOutput& operator=(const AnswerOutput&) = delete;

  // Writes the answers to the next rows. Throws Error(kIo).
  void write(const std::vector<Json>& answers);
  // Renames the temporary file to its final name.
  void finish();
  [[nodiscard]] bool is_file() const { return file_ != nullptr; }

 private:
  void add_lines(const Json& answer);
  void add_line(const Json& answer);

  std::string path_;
  std::string temporary_;
  std::unique_ptr<WritableFile> file_;  // null: standard output
  char separator_ = '\0';               // for a table
  std::vector<std::string> columns_;    // for a table; from the first answer
  int64_t row_ = 0;
  std::string text_;  // not written yet
};

}  // namespace finetune::cli
