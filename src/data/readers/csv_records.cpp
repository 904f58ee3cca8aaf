// SPDX-License-Identifier: MIT
#include <algorithm>
#include <utility>

#include "data/readers/byte_reader.h"
#include "data/readers/line_reader.h"
#include "data/readers/records.h"
#include "data/readers/row_encoding.h"
#include "finetune/base/error.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

// RFC 4180: a quoted field begins and ends with a quote, quotes inside are doubled, and it may
// contain separators and line ends. Without quoting each line is a record. Empty lines are skipped,
// as in pandas.
class CsvRecords final : public Records {
 public:
  CsvRecords(std::unique_ptr<ReadableFile> file, std::string name, const FileFormat& format)
      : reader_(std::move(file), name), name_(std::move(name)), format_(format) {
    Record record;
    if (!read(record)) return;
    const std::string position = format_text("{}:{}", name_, record.line);
    check_utf8(record.text, position);
    header_ = split_fields(record.text, format_, position);
    if (!format_.header) {
      for (size_t i = 0; i < header_.size(); ++i) header_[i] = format_text("column_{}", i + 1);
      first_line_ = record.line;
      return;
    }
    std::vector<std::string> sorted = header_;
    std::ranges::sort(sorted);
    const auto twice = std::ranges::adjacent_find(sorted);
    if (twice != sorted.end()) {
      throw Error(ErrorKind::kData, position + ": column '" + *twice +
                                        "' is there twice; the first line must name the columns, "
                                        "each once");
    }
  }

  [[nodiscard]] bool next(Record& record) override {
    if (first_line_ == 0) return read(record);
    record = {.text = text_, .line = std::exchange(first_line_, 0)};
    return true;
  }
  [[nodiscard]] uint64_t offset() const override { return reader_.offset(); }
  [[nodiscard]] uint64_t size() const override { return reader_.size(); }
  [[nodiscard]] const std::vector<std::string>& header() const override { return header_; }

 private:
  bool read(Record& record) {
    while (reader_.peek() == '\n' || reader_.peek() == '\r') reader_.take();
    if (reader_.peek() == ByteReader::kEnd) return false;
    text_.clear();
    record.line = reader_.line();
    record.number = 0;
    bool quoted = false;
    bool field_begins = true;
    while (true) {
      const int byte = reader_.peek();
      if (byte == ByteReader::kEnd) {
        if (quoted) {
          fail(record.line,
               "has a quote (\") that is never closed; close it, or set quoting: none where "
               "quotes are text");
        }
        break;
      }
      if (!quoted && (byte == '\n' || byte == '\r')) break;
      reader_.take();
      text_ += static_cast<char>(byte);
      if (text_.size() > LineReader::kLongestLine) {
        fail(record.line, "is longer than 16 MiB; is a quote (\") never closed?");
      }
      // A doubled quote closes and reopens the field, which has the same effect here.
      if (format_.quotes && byte == '"' && (quoted || field_begins)) {
        quoted = !quoted;
        field_begins = !quoted && reader_.peek() == '"';
      } else {
        field_begins = !quoted && byte == format_.separator;
      }
    }
    record.text = text_;
    return true;
  }

  [[noreturn]] void fail(int64_t line, const std::string& what) const {
    throw Error(ErrorKind::kData,
                format_text("{}:{}: the row that begins here {}", name_, line, what));
  }

  ByteReader reader_;
  std::string name_;
  FileFormat format_;
  std::vector<std::string> header_;
  std::string text_;
  int64_t first_line_ = 0;  // not 0: text_ is a row of this line that has not been returned yet
};

}  // namespace

std::unique_ptr<Records> read_csv_records(std::unique_ptr<ReadableFile> file,
                                          const std::string& name, const FileFormat& format) {
  return std::make_unique<CsvRecords>(std::move(file), name, format);
}

std::vector<std::string> split_fields(std::string_view record, const FileFormat& format,
                                      const std::string& position) {
  const char separator = format.separator;
  std::vector<std::string> fields(1);
  size_t at = 0;
  while (true) {
    std::string& field = fields.back();
    if (format.quotes && at < record.size() && record[at] == '"') {
      for (++at; at < record.size(); ++at) {
        if (record[at] == '"' && (at + 1 == record.size() || record[at + 1] != '"')) break;
        if (record[at] == '"') ++at;
        field += record[at];
      }
      at = std::min(at + 1, record.size());  // after the closing quote
      if (at < record.size() && record[at] != separator) {
        throw Error(
            ErrorKind::kData,
            format_text("{}: field {} has text after its closing quote; double the quotes inside "
                        "of a field (\"\"), or set quoting: none where quotes are text",
                        position, fields.size()));
      }
    } else {
      const size_t end = std::min(record.find(separator, at), record.size());
      field = record.substr(at, end - at);
      at = end;
    }
    if (at == record.size()) return fields;
    ++at;
    fields.emplace_back();
  }
}

}  // namespace finetune
