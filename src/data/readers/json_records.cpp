// SPDX-License-Identifier: MIT
#include <utility>

#include "data/readers/byte_reader.h"
#include "data/readers/records.h"
#include "finetune/base/error.h"
#include "finetune/base/text.h"

namespace finetune {
namespace {

constexpr size_t kLongestRow = size_t{256} << 20;  // the limit of parse_json()

bool is_space(int byte) { return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r'; }

// Objects in one list, in the list "data" of one object, or in sequence. Finds where each begins
// and ends by its brackets and strings; JSON errors are found when it is parsed.
class JsonRecords final : public Records {
 public:
  JsonRecords(std::unique_ptr<ReadableFile> file, std::string name)
      : reader_(std::move(file), name), name_(std::move(name)) {}

  [[nodiscard]] bool next(Record& record) override {
    if (form_ == Form::kUnknown && begin()) return finish(record);
    skip_space();
    if (form_ == Form::kSequence) {
      if (reader_.peek() == ByteReader::kEnd) return false;
      expect_object("the file");
    } else {
      if (form_ == Form::kEnded || !find_element()) return false;
      expect_object("the list");
    }
    line_ = reader_.line();
    text_.clear();
    static_cast<void>(scan_object(false));
    return finish(record);
  }
  [[nodiscard]] uint64_t offset() const override { return reader_.offset(); }
  [[nodiscard]] uint64_t size() const override { return reader_.size(); }

 private:
  enum class Form { kUnknown, kSequence, kList, kDataList, kEnded };

  [[noreturn]] void fail(int64_t line, const std::string& what) const {
    throw Error(ErrorKind::kData, format_text("{}:{}: {}", name_, line, what));
  }

  void skip_space() {
    while (is_space(reader_.peek())) reader_.take();
  }

  bool finish(Record& record) {
    ++rows_;
    const bool one_a_line = form_ == Form::kSequence && line_ > last_line_;
    last_line_ = line_;
    record = {.text = text_, .line = line_, .number = one_a_line ? 0 : rows_};
    return true;
  }

  // Returns true if the first object is a row, which is then in text_.
  bool begin() {
    skip_space();
    if (reader_.peek() == '[') {
      reader_.take();
      form_ = Form::kList;
      return false;
    }
    form_ = Form::kSequence;
    if (reader_.peek() == ByteReader::kEnd) return false;
    expect_object("the file");
    line_ = reader_.line();
    if (!scan_object(true)) return true;
    form_ = Form::kDataList;
    return false;
  }

  void expect_object(const std::string& where) {
    if (reader_.peek() == '{') return;
    const std::string row = where == "the file" ? "" : format_text("row {} of ", rows_ + 1);
    fail(reader_.line(), row + where +
                             " is no JSON object; write {\"column\": value, ...} for each row, in "
                             "a list or a line each");
  }

  // Moves to the next element of the list; returns false at its end.
  bool find_element() {
    if (rows_ > 0 && reader_.peek() == ',') {
      reader_.take();
      skip_space();
    } else if (reader_.peek() == ']') {
      reader_.take();
      end_list();
      return false;
    } else if (rows_ > 0 && reader_.peek() != ByteReader::kEnd) {
      fail(reader_.line(), format_text("there is no comma after row {}", rows_));
    }
    if (reader_.peek() == ByteReader::kEnd) {
      fail(reader_.line(), "the list of rows has no end (']' is missing); is the file complete?");
    }
    return true;
  }

  void end_list() {
    if (form_ == Form::kDataList) {
      const int64_t line = reader_.line();
      depth_ = 1;
      text_.clear();
      while (depth_ > 0) {
        scan_byte(line);
        if (!in_string_) text_.clear();
      }
    }
    form_ = Form::kEnded;
    skip_space();
    if (reader_.peek() != ByteReader::kEnd) {
      fail(reader_.line(), "there is more after the list of rows; leave one list in the file");
    }
  }

  // Reads the next object into text_. With `may_hold_rows`, stops and returns true inside a list of
  // objects named "data".
  bool scan_object(bool may_hold_rows) {
    depth_ = 0;
    do {
      scan_byte(line_);
      if (may_hold_rows && depth_ == 1 && !in_string_ && text_.back() == ':' && is_data_key()) {
        skip_space();
        if (reader_.peek() != '[') continue;
        scan_byte(line_);
        skip_space();
        if (reader_.peek() == '{' || reader_.peek() == ']') return true;
      }
    } while (depth_ > 0);
    return false;
  }

  // Scans back over the white space before a colon only up to a limit, so that adversarial input
  // takes linear time.
  [[nodiscard]] bool is_data_key() const {
    constexpr size_t kFarthest = 4096;
    size_t end = text_.size() - 1;  // the colon
    const size_t stop = end > kFarthest ? end - kFarthest : 0;
    while (end > stop &&
           std::string_view(" \t\r\n").find(text_[end - 1]) != std::string_view::npos) {
      --end;
    }
    return end >= 6 && text_.compare(end - 6, 6, "\"data\"") == 0;
  }

  void scan_byte(int64_t begun) {
    const int byte = reader_.take();
    if (byte == ByteReader::kEnd) {
      fail(begun, "the object that begins here has no end; is the file complete?");
    }
    text_ += static_cast<char>(byte);
    if (text_.size() > kLongestRow) fail(begun, "the row is longer than 256 MiB");
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (byte == '\\') {
        escaped_ = true;
      } else if (byte == '"') {
        in_string_ = false;
      }
      return;
    }
    if (byte == '"') in_string_ = true;
    if (byte == '{' || byte == '[') ++depth_;
    if (byte == '}' || byte == ']') --depth_;
  }

  ByteReader reader_;
  std::string name_;
  Form form_ = Form::kUnknown;
  std::string text_;
  int64_t line_ = 0;       // where text_ begins
  int64_t last_line_ = 0;  // line of the previous row
  int64_t rows_ = 0;
  int64_t depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

}  // namespace

std::unique_ptr<Records> read_json_records(std::unique_ptr<ReadableFile> file,
                                           const std::string& name) {
  return std::make_unique<JsonRecords>(std::move(file), name);
}

}  // namespace finetune
