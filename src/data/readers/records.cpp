// SPDX-License-Identifier: MIT
#include "data/readers/records.h"

#include <utility>

#include "data/readers/line_reader.h"
#include "finetune/base/error.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

constexpr std::string_view kLineMark = "\xEF\xBB\xBF";

// Lines of text, or of JSON without blank lines and byte order mark.
class LineRecords final : public Records {
 public:
  LineRecords(std::unique_ptr<ReadableFile> file, const std::string& name, bool json)
      : reader_(std::move(file), name), json_(json) {}

  [[nodiscard]] bool next(Record& record) override {
    while (reader_.next(record.text)) {
      record.line = reader_.line_number();
      record.number = 0;
      record.ended = reader_.line_ended();
      if (!json_) return true;
      if (record.line == 1 && record.text.starts_with(kLineMark)) {
        record.text.remove_prefix(kLineMark.size());
      }
      if (!is_blank_json(record.text)) return true;
    }
    return false;
  }
  [[nodiscard]] uint64_t offset() const override { return reader_.offset(); }
  [[nodiscard]] uint64_t size() const override { return reader_.size(); }
  [[nodiscard]] RecordPosition position() const override {
    const LineReader::Position position = reader_.position();
    return {
        .offset = position.offset, .line = position.line, .after_return = position.after_return};
  }
  [[nodiscard]] bool seek(const RecordPosition& position, bool polls) override {
    reader_.seek(
        {.offset = position.offset, .line = position.line, .after_return = position.after_return},
        polls);
    return true;
  }

 private:
  LineReader reader_;
  bool json_;
};

// Sentences of CoNLL: lines up to a blank one. Lines that mark a document are skipped.
class ConllRecords final : public Records {
 public:
  ConllRecords(std::unique_ptr<ReadableFile> file, const std::string& name)
      : reader_(std::move(file), name), name_(name) {}

  [[nodiscard]] bool next(Record& record) override {
    sentence_.clear();
    std::string_view line;
    while (reader_.next(line)) {
      if (reader_.line_number() == 1 && line.starts_with(kLineMark)) {
        line.remove_prefix(kLineMark.size());
      }
      if (is_blank_json(line) || line.starts_with("-DOCSTART-")) {
        if (!sentence_.empty()) break;
        continue;
      }
      if (sentence_.empty()) record.line = reader_.line_number();
      (sentence_ += line) += '\n';
      if (sentence_.size() > LineReader::kLongestLine) {
        throw Error(
            ErrorKind::kData,
            format_text(
                "{}:{}: the sentence is longer than 16 MiB; put a blank line between sentences",
                name_, record.line));
      }
    }
    record.text = sentence_;
    record.number = 0;
    return !sentence_.empty();
  }
  [[nodiscard]] uint64_t offset() const override { return reader_.offset(); }
  [[nodiscard]] uint64_t size() const override { return reader_.size(); }

 private:
  LineReader reader_;
  std::string name_;
  std::string sentence_;
};

}  // namespace

const std::vector<std::string>& Records::header() const {
  static const std::vector<std::string> kNone;
  return kNone;
}

const ClassNames& Records::classes() const {
  static const ClassNames kNone;
  return kNone;
}

std::unique_ptr<Records> read_records(std::unique_ptr<ReadableFile> file, const std::string& name,
                                      const FileFormat& format) {
  const FileKind kind = format.kind;
  switch (kind) {
    case FileKind::kText:
    case FileKind::kJsonLines:
      return std::make_unique<LineRecords>(std::move(file), name, kind == FileKind::kJsonLines);
    case FileKind::kJson:
      return read_json_records(std::move(file), name);
    case FileKind::kCsv:
    case FileKind::kTsv:
      return read_csv_records(std::move(file), name, format);
    case FileKind::kParquet:
    case FileKind::kArrow:
      return read_arrow_records(std::move(file), name, kind);
    case FileKind::kTfRecord:
      return read_tf_records(std::move(file), name);
    case FileKind::kConll:
      return std::make_unique<ConllRecords>(std::move(file), name);
  }
  FT_CHECK(false, "every kind of file has its reader");
}

}  // namespace finetune
