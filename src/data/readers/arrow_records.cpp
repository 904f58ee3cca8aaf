// SPDX-License-Identifier: MIT
#include <nlohmann/json.hpp>
#include <optional>

#include "data/readers/arrow_process.h"
#include "data/readers/line_reader.h"
#include "data/readers/records.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/json.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

// Reads the rows that arrow_script.h writes.
class ArrowRecords final : public Records {
 public:
  ArrowRecords(const std::string& name, const std::string& kind, uint64_t size)
      : name_(name), kind_(kind), size_(size) {
    std::string missing;
    for (const std::string& python : arrow_interpreters()) {
      start(python, 0);
      const auto why = learn();
      if (!why) return;
      missing += (missing.empty() ? "" : "; ") + python + ": " + *why;
    }
    const std::string python =
        arrow_interpreters().empty() ? "python3" : arrow_interpreters().front();
    throw Error(ErrorKind::kData,
                "'" + name_ + "' is read with Python's pyarrow, which is not there (" + missing +
                    "): install it ('" + python +
                    " -m pip install pyarrow'), name an interpreter that "
                    "has it in FINETUNE_PYTHON, or convert the file to JSON lines");
  }

  [[nodiscard]] bool next(Record& record) override {
    if (ended_) return false;
    std::string_view line;
    if (!reader_->next(line)) fail_at_end();
    const char letter = line.empty() ? '\0' : line.front();
    if (!line.empty()) line.remove_prefix(1);
    if (letter == 'R') {
      record = {.text = line, .line = 0, .number = ++row_};
      return true;
    }
    if (letter == 'E') fail(text_of(line));
    if (letter != 'D' || line != std::to_string(row_)) fail_at_end();
    ended_ = true;
    return false;
  }

  // Approximate: assumes that all rows of a Parquet file have the same size.
  [[nodiscard]] uint64_t offset() const override {
    if (ended_ || rows_ <= 0) return ended_ ? size_ : 0;
    const double after = static_cast<double>(row_) / static_cast<double>(rows_);
    return static_cast<uint64_t>(after * static_cast<double>(size_));
  }
  [[nodiscard]] uint64_t size() const override { return size_; }

  [[nodiscard]] const ClassNames& classes() const override { return classes_; }

  // Starts another process, which skips row groups.
  [[nodiscard]] bool seek(const RecordPosition& position, bool) override {
    start(python_, position.records);
    if (const auto why = learn()) fail(*why);
    row_ = position.records;
    ended_ = false;
    return true;
  }

 private:
  void start(const std::string& python, int64_t first) {
    auto process = std::make_unique<ArrowProcess>(python, name_, kind_, first);
    process_ = process.get();
    python_ = python;
    reader_ = std::make_unique<LineReader>(std::move(process), name_);
  }

  // Reads the header. Returns why this interpreter cannot read the file, or nullopt if it can.
  [[nodiscard]] std::optional<std::string> learn() {
    std::string_view line;
    if (!reader_->next(line)) return "ended with " + process_->ending();
    const std::string_view rest = line.substr(std::min<size_t>(1, line.size()));
    if (line.starts_with('N')) return text_of(rest);
    if (line.starts_with('E')) fail(text_of(rest));
    if (!line.starts_with('C')) return "does not say what was expected";
    const Json count = parse_json(rest, name_, ErrorKind::kData);
    if (!count.is_array() || count.empty()) return "does not say what was expected";
    if (count[0].is_number_unsigned()) rows_ = count[0].get<int64_t>();
    classes_.clear();
    if (count.size() == 1) return std::nullopt;
    for (const auto& [column, names] : count[1].items()) {
      for (const Json& name : names) classes_[column].push_back(name.get<std::string>());
    }
    return std::nullopt;
  }

  [[nodiscard]] std::string text_of(std::string_view json) const {
    const Json text = parse_json(json, name_, ErrorKind::kData);
    return text.is_string() ? text.get<std::string>() : text.dump();
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw Error(
        ErrorKind::kData,
        format_text("'{}', after row {}: pyarrow cannot read it: {}; fetch or make the file again",
                    name_, row_, why));
  }

  [[noreturn]] void fail_at_end() const {
    interrupt::throw_if_requested("reading '" + name_ + "'");
    throw Error(ErrorKind::kData,
                format_text("'{}', after row {}: the Python process that reads it ended with {}; "
                            "run again, with more memory free if it was killed",
                            name_, row_, process_->ending()));
  }

  std::string name_;
  std::string kind_;
  std::string python_;
  uint64_t size_;
  std::unique_ptr<LineReader> reader_;
  ArrowProcess* process_ = nullptr;  // the reader's
  int64_t rows_ = 0;                 // 0: unknown
  ClassNames classes_;
  int64_t row_ = 0;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<Records> read_arrow_records(std::unique_ptr<ReadableFile> file,
                                            const std::string& name, FileKind kind) {
  const char* format = kind == FileKind::kParquet ? "parquet" : "arrow";
  return std::make_unique<ArrowRecords>(name, format, file->size());
}

}  // namespace finetune
