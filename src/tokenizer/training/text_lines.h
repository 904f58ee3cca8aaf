// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "finetune/base/file_system.h"

namespace finetune::tokenizer {

// The lines of several text files in order, as SentencePiece's trainer uses them: skips lines that
// are blank, longer than a limit (never held in memory completely) or contain its mark for unknown
// characters (U+2585). Throws Error(kData) with file and line for invalid UTF-8.
class TextLines {
 public:
  struct Counts {
    int64_t lines = 0;     // returned
    int64_t too_long = 0;  // skipped
    int64_t reserved = 0;
    std::string first_too_long{};  // FILE:LINE
  };
  using Progress = std::function<void(int64_t done, int64_t total)>;

  TextLines(const std::vector<std::string>& paths, size_t max_line_bytes, Progress progress);

  // Returns false at the end.
  bool next();
  // Requires: next() returned true.
  [[nodiscard]] const std::string& line() const { return line_; }
  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  [[nodiscard]] static std::unique_ptr<ReadableFile> open(const std::string& path);
  bool read_line();
  bool read_block();
  bool is_wanted();

  const std::vector<std::string>& paths_;
  size_t max_line_bytes_;
  Progress progress_;
  std::unique_ptr<ReadableFile> open_;  // the current file; only one is open at a time
  size_t file_ = 0;
  uint64_t offset_ = 0;  // file offset of the block's end
  int64_t number_ = 0;   // line number in the file
  int64_t done_ = 0;
  int64_t total_ = 0;
  std::string block_;
  size_t at_ = 0;  // offset in the block
  std::string line_;
  bool too_long_ = false;
  Counts counts_;
};

}  // namespace finetune::tokenizer
