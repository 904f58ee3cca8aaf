// SPDX-License-Identifier: MIT
#include "data/row_source.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/log.h"

namespace finetune {
namespace {

constexpr size_t kRowsOfBlock = 1000;
constexpr size_t kBytesOfBlock = size_t{1} << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

RowSource::RowSource(std::vector<std::string> files, RowRange range,
                     std::optional<std::string> text_column)
    : files_(std::move(files)), range_(range), text_column_(std::move(text_column)) {
  for (const std::string& file : files_) total_bytes_ += FileSystem::local().open(file)->size();
}

double RowSource::fraction() const {
  const uint64_t here = reader_ ? reader_->offset() : 0;
  const auto total = static_cast<double>(total_bytes_);
  return total > 0 ? static_cast<double>(bytes_behind_ + here) / total : 1.0;
}

bool RowSource::open_next_file() {
  if (reader_) bytes_behind_ += reader_->size();
  reader_.reset();
  if (next_file_ == files_.size()) return false;
  path_ = files_[next_file_++];
  json_ = file_kind(path_) == FileKind::kJsonLines;
  schema_known_ = false;
  reader_ = std::make_unique<LineReader>(path_);
  return true;
}

void RowSource::learn_schema(std::string_view line) {
  RowSchema found;
  if (json_) {
    const std::string place = path_ + ":" + std::to_string(reader_->line_number());
    found = find_schema(parse_row(line, place), place, text_column_);
    if (!text_column_ && !found.tokens && found.text_column != schema_.text_column) {
      log::info("text_column: '" + found.text_column + "' (guessed from " + path_ + ")");
    }
  }
  const auto same_kind = [&] {
    return found.tokens == schema_.tokens && found.labels == schema_.labels &&
           found.masks == schema_.masks;
  };
  if (!first_row_ && !same_kind()) {
    throw Error(ErrorKind::kData,
                "'" + path_ + "' and '" + files_.front() +
                    "' hold different columns (text, or input_ids with or without attention_mask "
                    "and labels); give all files the same columns");
  }
  schema_ = std::move(found);
  schema_known_ = true;
  first_row_ = false;
}

bool RowSource::next(RowBlock& block) {
  block = {};
  std::string_view line;
  while (row_ < range_.end && block.rows.size() < kRowsOfBlock &&
         block.text.size() < kBytesOfBlock) {
    if (!reader_ || !reader_->next(line)) {
      if (!block.rows.empty()) return true;  // a block is of one file
      if (!open_next_file()) return false;
      continue;
    }
    if (json_) {
      if (reader_->line_number() == 1 && line.starts_with(kByteOrderMark)) {
        line.remove_prefix(kByteOrderMark.size());
      }
      if (is_blank_json(line)) continue;
    }
    if (!schema_known_) learn_schema(line);
    if (row_++ < range_.begin) continue;
    if (block.rows.empty()) {
      block.path = path_;
      block.json = json_;
      block.schema = schema_;
    }
    block.rows.push_back({block.text.size(), line.size(), reader_->line_number()});
    block.text += line;
  }
  return !block.rows.empty();
}

}  // namespace finetune
