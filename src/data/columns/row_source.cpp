// SPDX-License-Identifier: MIT
#include "data/columns/row_source.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "data/columns/json_row.h"
#include "data/readers/byte_reader.h"
#include "data/readers/row_encoding.h"
#include "data/readers/tf_row.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/base/utf8.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kBytesOfBlock = size_t{1} << 20;

Json parse_fields(std::string_view text, const FileFormat& format,
                  const std::vector<std::string>& header, const std::string& position) {
  check_utf8(text, position);
  std::vector<std::string> fields = split_fields(text, format, position);
  if (fields.size() != header.size()) {
    throw Error(
        ErrorKind::kData,
        format_text("{}: has {}{} where the {} has {}; put quotes around text that holds the "
                    "separator or a line end, or set delimiter and quoting to what the file has",
                    position, fields.size(), fields.size() == 1 ? " field" : " fields",
                    format.header ? "header" : "first row", header.size()));
  }
  Json row = Json::object();
  for (size_t i = 0; i < fields.size(); ++i) row[header[i]] = std::move(fields[i]);
  return row;
}

// Parses lines of a word and its tag in the last column; words without tags are still to be tagged.
Json parse_sentence(std::string_view text, const std::string& position) {
  check_utf8(text, position);
  Json words = Json::array();
  Json tags = Json::array();
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    const std::string_view blanks = line.find('\t') != std::string_view::npos ? "\t" : " ";
    const size_t word_end = line.find_first_of(blanks);
    words.push_back(std::string(line.substr(0, word_end)));
    const size_t last = line.find_last_not_of(" \t");
    const size_t tag = line.substr(0, last + 1).find_last_of(blanks);
    if (tag != std::string_view::npos) {
      tags.push_back(std::string(line.substr(tag + 1, last - tag)));
    }
    if (!tags.empty() && tags.size() != words.size()) {
      throw Error(ErrorKind::kData,
                  format_text("{}: line {} of the sentence has no tag where the others have one; "
                              "write a word and its tag on each line, with a space or tab between",
                              position, words.size()));
    }
  }
  Json row = {{"tokens", std::move(words)}};
  if (!tags.empty()) row["ner_tags"] = std::move(tags);
  return row;
}

}  // namespace

std::string RowBlock::position(const Row& row) const {
  const std::string line = row.line == 0 ? name : format_text("{}:{}", name, row.line);
  return row.number == 0 ? line : format_text("{}, row {}", line, row.number);
}

Json RowBlock::parse(const Row& row) const {
  switch (kind) {
    case FileKind::kText:
      check_utf8(view(row), position(row));
      return {{"text", std::string(view(row))}};
    case FileKind::kJsonLines:
      return parse_row(view(row), position(row));
    case FileKind::kParquet:
    case FileKind::kArrow:
      check_arrow_text(view(row), position(row));
      [[fallthrough]];
    case FileKind::kJson:
      return parse_object(view(row), position(row));
    case FileKind::kCsv:
    case FileKind::kTsv:
      return parse_fields(view(row), format, *header, position(row));
    case FileKind::kConll:
      return parse_sentence(view(row), position(row));
    case FileKind::kTfRecord:
      return tf_row(view(row), position(row));
  }
  FT_CHECK(false, "every kind of file has its rows");
}

RowSource::RowSource(const std::vector<std::string>& patterns, const RowOptions& options)
    : key_(options.key),
      memory_(options.json_lines),
      range_(options.rows),
      share_(options.share),
      progress_(options.progress),
      reading_(options.reading),
      replace_broken_utf8_(options.replace_broken_utf8) {
  if (share_) share_order_.emplace(std::max<int64_t>(1, share_->total), share_->seed, 0);
  if (memory_) {
    names_ = {key_};
    total_bytes_ = memory_->size();
    return;
  }
  names_ = expand_files(patterns, key_);
  for (size_t file = 0; file < names_.size(); ++file) {
    static_cast<void>(file_kind(names_[file]));  // reject the file before anything is read
    total_bytes_ += open(file)->size();
  }
}

std::unique_ptr<ReadableFile> RowSource::open(size_t file) const {
  if (memory_) return std::make_unique<MemoryFile>(*memory_);
  return FileSystem::local().open(names_[file]);
}

double RowSource::fraction() const {
  const uint64_t here = records_ ? records_->offset() : 0;
  const auto total = static_cast<double>(total_bytes_);
  return total > 0 ? static_cast<double>(bytes_after_ + here) / total : 1.0;
}

bool RowSource::open_next_file() {
  if (records_) bytes_after_ += records_->size();
  records_.reset();
  if (opened_ == names_.size()) return false;
  const std::string& name = names_[opened_];
  const size_t file = opened_;
  format_ = memory_ ? FileFormat{.kind = FileKind::kJsonLines}
                    : find_format(name, reading_, [&] { return open(file); });
  records_ = read_records(open(file), name, format_);
  header_ = std::make_shared<const std::vector<std::string>>(records_->header());
  classes_ = std::make_shared<const ClassNames>(records_->classes());
  learned_ = false;
  replaced_ = false;
  row_of_file_ = 0;
  ++opened_;
  return true;
}

void RowSource::describe(RowBlock& block) const {
  block.name = names_[opened_ - 1];
  block.file = opened_ - 1;
  block.kind = format_.kind;
  block.format = format_;
  block.header = header_;
  block.classes = classes_;
}

void RowSource::learn(const Record& record) {
  learned_ = true;
  if (!first_row_) return;
  RowBlock block;
  describe(block);
  block.text = record.text;
  block.rows.push_back({0, record.text.size(), record.line, record.number, record.ended});
  first_row_(block);
}

void RowSource::repair(Record& record) {
  RowBlock block;
  describe(block);
  const RowBlock::Row row{.line = record.line, .number = record.number};
  if (format_.kind == FileKind::kTfRecord) {
    auto repaired = repair_tf_row(record.text, block.position(row));
    if (!repaired) return;
    repaired_ = std::move(*repaired);
  } else {
    const bool is_json = format_.kind == FileKind::kJson || format_.kind == FileKind::kJsonLines;
    const bool has_halves = is_json && find_lone_surrogate(record.text) != std::string_view::npos;
    if (!has_halves && utf8::find_invalid(record.text) == std::string_view::npos) return;
    repaired_ = utf8::replace_invalid(record.text);
    if (has_halves) repaired_ = replace_lone_surrogates(std::move(repaired_));
  }
  record.text = repaired_;
  if (replaced_) return;
  replaced_ = true;
  log::warning(
      block.position(row) +
      ": bytes that are no UTF-8, or halves of characters, are replaced, here and in later rows "
      "(encoding_errors: replace)");
}

// Polls for signals and reports progress while rows before the range are skipped, which may be most
// of the data.
void RowSource::skip_row() const {
  constexpr int64_t kRowsBetweenPolls = 256;
  if (read_ % kRowsBetweenPolls != 0) return;
  interrupt::throw_if_requested("reading " + key_);
  if (progress_) progress_(fraction());
}

bool RowSource::is_of_share(int64_t row) const {
  if (!share_) return true;
  if (row >= share_->total) return false;  // the file has grown since its rows were counted
  const int64_t position = (*share_order_)[row];
  return share_->positions.begin <= position && position < share_->positions.end;
}

RowPosition RowSource::position() const {
  if (!records_) return {.file = opened_};
  RowPosition position{.file = opened_ - 1, .record = records_->position()};
  position.record.records = row_of_file_;
  return position;
}

void RowSource::seek(const RowPosition& position, bool polls) {
  FT_CHECK(range_.begin == 0 && range_.end == INT64_MAX && !share_, "all rows are read");
  records_.reset();
  opened_ = position.file;
  if (!open_next_file() || position.record.records == 0) return;
  Record record;
  const auto skip = [&] {
    if (polls) interrupt::throw_if_requested("reading " + key_ + " up to where it was left");
    if (!records_->next(record)) {
      throw Error(ErrorKind::kData, "'" + names_[position.file] +
                                        "' has fewer rows than it had; put it back, or start over "
                                        "with --restart");
    }
    ++row_of_file_;
  };
  skip();
  if (replace_broken_utf8_) repair(record);
  learn(record);
  if (records_->seek(position.record, polls)) row_of_file_ = position.record.records;
  while (row_of_file_ < position.record.records) skip();
}

bool RowSource::next(RowBlock& block, size_t most) {
  block = {};
  Record record;
  while (row_ < range_.end && block.rows.size() < most && block.text.size() < kBytesOfBlock) {
    if (!records_ || !records_->next(record)) {
      if (!block.rows.empty()) return true;  // a block contains rows of one file
      if (!open_next_file()) return false;
      continue;
    }
    ++row_of_file_;
    if (replace_broken_utf8_) repair(record);
    if (!learned_) learn(record);
    if (!is_of_share(read_++) || row_++ < range_.begin) {
      skip_row();
      continue;
    }
    if (block.rows.empty()) describe(block);
    block.rows.push_back(
        {block.text.size(), record.text.size(), record.line, record.number, record.ended});
    block.text += record.text;
  }
  return !block.rows.empty();
}

}  // namespace finetune
