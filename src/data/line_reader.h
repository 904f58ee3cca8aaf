// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "data/byte_source.h"
#include "finetune/base/file_system.h"

namespace finetune {

// The lines of a file, without their ends. "\n", "\r\n" and a lone "\r" each end a line, as in
// Python's text mode. A packed file is unpacked (byte_source.h). Nothing else is looked at: a byte
// order mark and ill-formed UTF-8 pass.
class LineReader {
 public:
  static constexpr size_t kLongestLine = size_t{16} << 20;

  explicit LineReader(const std::string& path);
  LineReader(std::unique_ptr<ReadableFile> file, std::string name);
  LineReader(std::unique_ptr<ByteSource> source, std::string name);

  // False at the end. The view is valid until the next call. Throws Error(kData) for a line above
  // kLongestLine, Error(kIo) where reading fails.
  bool next(std::string_view& line);

  [[nodiscard]] int64_t line_number() const { return line_number_; }  // of the last line, from 1
  // Whether the last line ended, and not the file in its place.
  [[nodiscard]] bool line_ended() const { return line_ended_; }
  // How far in the file we are: about, where it is packed.
  [[nodiscard]] uint64_t offset() const;
  [[nodiscard]] uint64_t size() const { return source_->size(); }

  // Where the next line begins.
  struct Place {
    uint64_t offset = 0;  // in the content, which may be packed in the file
    int64_t line = 0;     // lines before it
    bool after_return = false;
  };
  [[nodiscard]] Place place() const;
  // Continues at a position of this file; in packed content it must not be before place(). Throws
  // Error(kData) if the file ends before it, Interrupted if `polls`.
  void seek(const Place& place, bool polls);

 private:
  bool fill();
  // Where the line at used_ ends; filled_: not in the buffer.
  [[nodiscard]] size_t find_line_end();
  // The first such byte from used_ on; `end` where there is none before it.
  [[nodiscard]] size_t find_in_buffer(char byte, size_t end) const;
  void check_length(size_t length) const;

  std::string path_;
  std::unique_ptr<ByteSource> source_;
  std::string buffer_;
  size_t used_ = 0;
  size_t filled_ = 0;
  size_t feed_ = 0;            // the next "\n" from used_ on, or filled_; below used_: not searched
  uint64_t delivered_ = 0;     // bytes of the content up to the buffer's end
  std::string carried_;        // the beginning of a line that crosses the buffer's end
  bool after_return_ = false;  // the last line ended with "\r": a "\n" now belongs to it
  int64_t line_number_ = 0;
  bool line_ended_ = false;
};

// Only JSON's white space: such lines between rows are no rows.
[[nodiscard]] bool is_blank_json(std::string_view line);

}  // namespace finetune
