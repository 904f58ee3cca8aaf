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

// Where predictions go: standard output as JSON lines, or a file as JSON lines (.jsonl, .ndjson) or
// as a table (.csv, .tsv). A table has a line for each answer of a row: the row's number from 1,
// then the answer's fields; fields that are lists are written as JSON.
class AnswerOutput {
 public:
  using Json = nlohmann::ordered_json;

  // No path: standard output. Throws Error(kUsage) for another ending, Error(kIo).
  explicit AnswerOutput(const std::optional<std::string>& path);
  // Removes what was written so far unless finish() was called.
  ~AnswerOutput();
  AnswerOutput(const AnswerOutput&) = delete;
  AnswerOutput& operator=(const AnswerOutput&) = delete;

  // The answers to the next rows. Throws Error(kIo).
  void write(const std::vector<Json>& answers);
  // Gives the file its name: until then nothing is there under it.
  void finish();
  [[nodiscard]] bool is_file() const { return file_ != nullptr; }

 private:
  void add_lines(const Json& answer);
  void add_line(const Json& answer);

  std::string path_;
  std::string temporary_;
  std::unique_ptr<WritableFile> file_;  // null: standard output
  char separator_ = '\0';               // of a table
  std::vector<std::string> columns_;    // of a table; taken from the first answer
  int64_t row_ = 0;
  std::string text_;  // that is still to be written
};

}  // namespace finetune::cli
