// SPDX-License-Identifier: MIT
#include "data/readers/file_format.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "data/readers/byte_source.h"
#include "finetune/base/log.h"

namespace finetune {
namespace {

constexpr size_t kSampleBytes = size_t{4} << 20;
constexpr size_t kRowsOfSeparator = 100;  // that must agree to choose another separator
constexpr std::string_view kSampleMark = "\xEF\xBB\xBF";

// The beginning of a file, decompressed.
struct Sample {
  std::string text;
  bool is_whole = false;
};

Sample read_sample(const std::string& name,
                   const std::function<std::unique_ptr<ReadableFile>()>& open) {
  const std::unique_ptr<ByteSource> source = read_bytes(open(), name);
  Sample sample{.text = std::string(kSampleBytes, '\0')};
  size_t filled = 0;
  while (filled < kSampleBytes) {
    const size_t count = source->read(sample.text.data() + filled, kSampleBytes - filled);
    if (count == 0) break;
    filled += count;
  }
  sample.is_whole = filled < kSampleBytes;
  sample.text.resize(filled);
  if (sample.text.starts_with(kSampleMark)) sample.text.erase(0, kSampleMark.size());
  return sample;
}

// Reports every file's format once, however often the file is opened.
void report(const std::string& line) {
  static std::mutex mutex;
  static std::set<std::string> reported;
  const std::lock_guard<std::mutex> lock(mutex);
  if (reported.insert(line).second) log::info(line);
}

// Counts the fields of the first rows: by RFC 4180, or with quotes as ordinary text.
class FieldCounter {
 public:
  FieldCounter(const Sample& sample, char separator, bool quotes)
      : text_(sample.text), is_whole_(sample.is_whole), separator_(separator), quotes_(quotes) {}

  // Returns the number of fields if all rows have the same; nullopt if they differ or a quote is
  // wrong.
  [[nodiscard]] std::optional<size_t> common(size_t most_rows) {
    std::optional<size_t> common;
    for (size_t rows = 0; rows < most_rows; ++rows) {
      skip_line_ends();
      if (at_ == text_.size()) break;
      const std::optional<size_t> fields = count();
      if (was_cut_) break;
      if (!fields || (common && *common != *fields)) return std::nullopt;
      common = fields;
    }
    return common;
  }

 private:
  void skip_line_ends() {
    while (at_ < text_.size() && is_line_end(text_[at_])) ++at_;
  }
  static bool is_line_end(char c) { return c == '\n' || c == '\r'; }

  // Counts the fields of a row; sets `was_cut_` if the sample ends within it.
  std::optional<size_t> count() {
    size_t fields = 1;
    while (true) {
      if (quotes_ && at_ < text_.size() && text_[at_] == '"' && !skip_quoted()) return std::nullopt;
      while (at_ < text_.size() && text_[at_] != separator_ && !is_line_end(text_[at_])) ++at_;
      if (at_ == text_.size()) {
        was_cut_ = !is_whole_;
        return fields;
      }
      if (is_line_end(text_[at_])) return fields;
      ++at_;
      ++fields;
    }
  }

  // Returns false if the quote is never closed, or text follows it.
  bool skip_quoted() {
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] != '"') continue;
      if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
        ++at_;
        continue;
      }
      ++at_;
      return at_ == text_.size() || text_[at_] == separator_ || is_line_end(text_[at_]);
    }
    return false;
  }

  std::string_view text_;
  bool is_whole_;
  char separator_;
  bool quotes_;
  size_t at_ = 0;
  bool was_cut_ = false;
};

std::string name_of(char separator) {
  if (separator == '\t') return "a tab";
  if (separator == ';') return "a semicolon";
  if (separator == ',') return "a comma";
  return separator == '|' ? "a vertical bar" : "'" + std::string(1, separator) + "'";
}

// Returns the separator of the ending, unless the first line lacks it and another separator gives
// the same number of fields in every row.
char find_separator(const Sample& sample, char usual) {
  const std::string_view first =
      std::string_view(sample.text).substr(0, sample.text.find_first_of("\r\n"));
  if (first.find(usual) != std::string_view::npos) return usual;
  std::optional<char> found;
  for (const char other : {';', '\t', ',', '|'}) {
    if (other == usual || first.find(other) == std::string_view::npos) continue;
    const auto fields = FieldCounter(sample, other, true).common(kRowsOfSeparator);
    if (!fields || *fields < 2) continue;
    if (found) return usual;
    found = other;
  }
  return found.value_or(usual);
}

// Whether quotes enclose fields; in GLUE's TSV files they are ordinary text.
bool has_quotes(const Sample& sample, char separator) {
  if (FieldCounter(sample, separator, true).common(SIZE_MAX)) return true;
  const auto fields = FieldCounter(sample, separator, false).common(SIZE_MAX);
  return !fields || *fields < 2;
}

// "O", "B-PER", "I-LOC", ...
bool is_entity_tag(std::string_view tag) {
  if (tag == "O") return true;
  return tag.size() > 2 && tag[1] == '-' &&
         std::string_view("BIESLUM").find(tag[0]) != std::string_view::npos;
}

// Whether every line has a word and a tag: the same number of columns, two or more.
bool is_conll(const Sample& sample, bool entity_tags_only) {
  std::optional<size_t> common;
  for (size_t begin = 0; begin < sample.text.size();) {
    const size_t end = std::min(sample.text.find('\n', begin), sample.text.size());
    if (end == sample.text.size() && !sample.is_whole) break;
    std::string_view line = std::string_view(sample.text).substr(begin, end - begin);
    begin = end + 1;
    line = line.substr(0, line.find_last_not_of(" \t\r") + 1);
    if (line.empty() || line.starts_with("-DOCSTART-")) continue;
    const char blank = line.find('\t') != std::string_view::npos ? '\t' : ' ';
    const auto columns = static_cast<size_t>(std::ranges::count(line, blank)) + 1;
    if (columns < 2 || (common && *common != columns)) return false;
    if (entity_tags_only && !is_entity_tag(line.substr(line.find_last_of(blank) + 1))) return false;
    common = columns;
  }
  return common.has_value();
}

bool is_delimited(FileKind kind) { return kind == FileKind::kCsv || kind == FileKind::kTsv; }

// Returns the format of CSV and TSV; `sample` returns the beginning of the file.
FileFormat delimited_format(FileKind kind, const ReadingOptions& reading,
                            const std::function<const Sample&()>& sample) {
  const char usual = kind == FileKind::kCsv ? ',' : '\t';
  FileFormat format{.kind = kind, .header = reading.header};
  format.separator = reading.delimiter ? *reading.delimiter : find_separator(sample(), usual);
  format.quotes = reading.quoting != Quoting::kNone;
  if (reading.quoting == Quoting::kAuto && format.separator == '\t') {
    format.quotes = has_quotes(sample(), format.separator);
  }
  return format;
}

// Reports what was decided by content.
void report_delimited(const std::string& name, const FileFormat& format,
                      const ReadingOptions& reading) {
  const char usual = format.kind == FileKind::kCsv ? ',' : '\t';
  if (!reading.delimiter && format.separator != usual) {
    report(name + ": fields are separated by " + name_of(format.separator) +
           " (seen in its first rows; set delimiter to read it otherwise)");
  }
  if (reading.quoting == Quoting::kAuto && !format.quotes) {
    report(name +
           ": quotes are read as text, as fields do not fit them (set quoting: standard to read it "
           "otherwise)");
  }
}

}  // namespace

FileFormat find_format(const std::string& name, const ReadingOptions& reading,
                       const std::function<std::unique_ptr<ReadableFile>()>& open) {
  const FileKind kind = file_kind(name);
  if (kind == FileKind::kText && reading.conll_text != ConllText::kNever) {
    if (!is_conll(read_sample(name, open), reading.conll_text == ConllText::kEntities)) {
      return {.kind = kind};
    }
    report(name + ": is read as CoNLL, a word and its tag on each line (seen in its first rows)");
    return {.kind = FileKind::kConll};
  }
  if (!is_delimited(kind)) return {.kind = kind};
  std::optional<Sample> sample;
  const FileFormat format = delimited_format(kind, reading, [&]() -> const Sample& {
    if (!sample) sample = read_sample(name, open);
    return *sample;
  });
  report_delimited(name, format, reading);
  return format;
}

ReadingOptions without_plain_keys(const std::vector<std::string>& files,
                                  const ReadingOptions& reading) {
  ReadingOptions plain = reading;
  plain.delimiter.reset();
  plain.quoting = Quoting::kAuto;
  if (plain == reading) return reading;
  for (const std::string& name : files) {
    const FileKind kind = file_kind(name);
    if (!is_delimited(kind)) continue;
    const Sample sample = read_sample(name, [&] { return FileSystem::local().open(name); });
    const auto format = [&](const ReadingOptions& options) {
      return delimited_format(kind, options, [&]() -> const Sample& { return sample; });
    };
    if (format(plain) != format(reading)) return reading;
  }
  return plain;
}

nlohmann::ordered_json reading_json(const ReadingOptions& reading) {
  ReadingOptions plain;
  plain.conll_text = reading.conll_text;  // determined by the task
  if (reading == plain) return {};
  return {{"delimiter", reading.delimiter ? std::string(1, *reading.delimiter) : ""},
          {"quoting", static_cast<int>(reading.quoting)},
          {"header", reading.header}};
}

void add_reading(nlohmann::ordered_json& key, const ReadingOptions& reading) {
  if (nlohmann::ordered_json json = reading_json(reading); !json.is_null()) {
    key["reading"] = std::move(json);
  }
}

}  // namespace finetune
