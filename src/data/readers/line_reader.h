// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "data/readers/byte_source.h"
#include "finetune/base/file_system.h"
#include "finetune/base/read_line.h"

namespace finetune {

// The lines of a file, without their ends. "\n", "\r\n" and a lone "\r" each end a line, as in
// Python's text mode. A compressed file is decompressed (byte_source.h). The content is not
// checked: a byte order mark and ill-formed UTF-8 are passed through.
class LineReader {
 public:
  static constexpr size_t kLongestLine = kLongestTextLine;

  explicit LineReader(const std::string& path);
  LineReader(std::unique_ptr<ReadableFile> file, std::string name);
  LineReader(std::unique_ptr<ByteSource> source, std::string name);

  // Returns false at the end. The view is valid until the next call. Throws Error(kData) for a line
  // above kLongestLine, Error(kIo) if reading fails.
  bool next(std::string_view& line);

  [[nodiscard]] int64_t line_number() const { return line_number_; }  // of the last line, from 1
  // Whether the last line had a line end, rather than ending with the file.
  [[nodiscard]] bool line_ended() const { return line_ended_; }
  // Position in the file; approximate if it is compressed.
  [[nodiscard]] uint64_t offset() const;
  [[nodiscard]] uint64_t size() const { return source_->size(); }

  // The start of the next line.
  struct Position {
    uint64_t offset = 0;  // in the decompressed content
    int64_t line = 0;     // lines before it
    bool after_return = false;
  };
  [[nodiscard]] Position position() const;
  // Continues at a position of this file; in compressed content it must not be before position().
  // Throws Error(kData) if the file ends before it, Interrupted if `polls`.
  void seek(const Position& position, bool polls);

 private:
  bool fill();
  // Returns the end of the line at used_; filled_: not in the buffer.
  [[nodiscard]] size_t find_line_end();
  // Returns the first such byte from used_ on; `end` if there is none before it.
  [[nodiscard]] size_t find_in_buffer(char byte, size_t end) const;
  void check_length(size_t length) const;

  std::string path_;
  std::unique_ptr<ByteSource> source_;
  std::string buffer_;
  size_t used_ = 0;
  size_t filled_ = 0;
  // Position of the next "\n" from used_ on, or filled_; below used_: not searched yet.
  size_t feed_ = 0;
  uint64_t delivered_ = 0;     // bytes of the content up to the buffer's end
  std::string carried_;        // the beginning of a line that crosses the buffer's end
  bool after_return_ = false;  // the last line ended with "\r": a "\n" now belongs to it
  int64_t line_number_ = 0;
  bool line_ended_ = false;
};

// Whether the line has only JSON's white space; such lines between rows are not rows.
[[nodiscard]] bool is_blank_json(std::string_view line);

}  // namespace finetune
