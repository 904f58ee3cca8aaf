// SPDX-License-Identifier: MIT
#include "cli/commands/answer_output.h"

#include <iostream>
#include <utility>

#include "cli/process/standard_output.h"
#include "finetune/base/clock.h"
#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/json_fields.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"

namespace finetune::cli {
namespace {

using Json = AnswerOutput::Json;

constexpr double kRecordSeconds = 2;  // a killed command loses the answers of this time

std::string to_line(const Json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Returns a field in RFC 4180 format.
std::string field_of(const Json& value, char separator) {
  std::string text = value.is_string() ? value.get<std::string>() : to_line(value);
  const std::string special = std::string("\"\r\n") + separator;
  const bool is_plain = text.find_first_of(special) == std::string::npos;
  if (is_plain && !text.starts_with(' ') && !text.ends_with(' ')) return text;
  for (size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2)
    text.insert(at, "\"");
  return "\"" + text + "\"";
}

char separator_of(const std::string& path) {
  if (path.ends_with(".csv")) return ',';
  if (path.ends_with(".tsv")) return '\t';
  if (path.ends_with(".jsonl") || path.ends_with(".ndjson")) return '\0';
  throw Error(ErrorKind::kUsage, "--output: the ending of '" + path +
                                     "' names no format; end it in .jsonl (JSON lines), .csv or "
                                     ".tsv");
}

}  // namespace

// Opens the file, which is created if it is missing; false: another process has it.
bool AnswerOutput::lock(const std::string& path) {
  for (int attempt = 0; attempt < 5; ++attempt) {
    // The file system says why where it is written.
    if (!lock_.open(path)) return true;
    const LockedFile::Outcome outcome = lock_.lock();
    if (outcome != LockedFile::Outcome::kLocked) return outcome != LockedFile::Outcome::kHeld;
    // The previous owner may have renamed the file while this process waited for the lock.
    if (lock_.is_at(path)) return true;
  }
  return false;
}

AnswerOutput::AnswerOutput(const std::optional<std::string>& path, std::string identity)
    : identity_(std::move(identity)) {
  if (!path) return;
  path_ = *path;
  separator_ = separator_of(path_);
  if (FileSystem::local().type(path_) == FileType::kDirectory) {
    throw Error(ErrorKind::kUsage, "--output: '" + path_ + "' is a folder; name a file");
  }
  if (!identity_.empty()) {
    open_partial();
    return;
  }
  // The name of FileSystem::write_atomically's files, which are known as leftovers.
  temporary_ =
      join_path(parent_path(path_), format_text(".tmp-{}.{}", file_name(path_), ::getpid()));
  file_ = FileSystem::local().create(temporary_);
}

void AnswerOutput::open_partial() {
  temporary_ = path_ + ".partial";
  if (!lock(temporary_)) {
    throw Error(ErrorKind::kBusy, "another process is writing '" + temporary_ +
                                      "'; wait for it, or name another file with --output");
  }
  FileSystem& files = FileSystem::local();
  const bool was_there = files.exists(record_path());
  if (read_record()) {
    files.truncate(temporary_, bytes_);
    file_ = files.append(temporary_);
    log::info(format_text("resuming after row {}: {} has the answers so far", row_, temporary_));
    return;
  }
  if (was_there) {
    log::info(temporary_ +
              " was written with another model, input or other options, so it is started again");
    files.remove_file(record_path());
  }
  file_ = files.create(temporary_);
}

// Whether the partial file holds answers to the same question.
bool AnswerOutput::read_record() {
  FileSystem& files = FileSystem::local();
  if (files.type(record_path()) != FileType::kFile) return false;
  try {
    const Json record = read_json_file(record_path());
    const JsonFields fields(record, record_path());
    const int64_t rows = fields.integer("rows", {.low = 1});
    const auto bytes = static_cast<uint64_t>(fields.integer("bytes", {.low = 0}));
    std::vector<std::string> columns = fields.texts("columns");
    if (fields.text("identity") != identity_ || files.open(temporary_)->size() < bytes) {
      return false;
    }
    row_ = recorded_rows_ = rows;
    bytes_ = bytes;
    columns_ = std::move(columns);
    return true;
  } catch (const Error& error) {  // damaged
    log::debug(error.what());
    return false;
  }
}

void AnswerOutput::write_record() {
  file_->sync();
  const Json record = {
      {"identity", identity_}, {"rows", row_}, {"bytes", bytes_}, {"columns", columns_}};
  FileSystem::local().write_atomically(
      record_path(), record.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n");
  recorded_rows_ = row_;
  recorded_ = Clock::steady().now();
}

void AnswerOutput::keep() {
  if (!file_ || identity_.empty()) return;
  try {
    if (row_ > recorded_rows_) write_record();
  } catch (const Error& error) {  // what the last record says is kept
    log::debug(error.what());
  }
  is_kept_ = recorded_rows_ > 0;
}

AnswerOutput::~AnswerOutput() {
  if (!file_) return;
  file_.reset();
  if (is_kept_) return;
  FileSystem& files = FileSystem::local();
  for (const std::string& path : {temporary_, record_path()}) {
    try {
      if (files.exists(path)) files.remove_file(path);
    } catch (const Error&) {  // there is another error already
    }
  }
}

// Writes one line per object, also for the objects of nested lists.
void AnswerOutput::add_lines(const Json& answer) {
  if (!answer.is_array()) return add_line(answer);
  for (const Json& one : answer) add_lines(one);
}

void AnswerOutput::add_line(const Json& answer) {
  if (columns_.empty()) {
    text_ += "row";
    for (const auto& [name, value] : answer.items()) {
      columns_.push_back(name);
      text_ += separator_ + field_of(name, separator_);
    }
    text_ += '\n';
  }
  text_ += std::to_string(row_);
  for (const std::string& name : columns_) {
    const auto found = answer.find(name);
    text_ += separator_;
    if (found != answer.end() && !found->is_null()) text_ += field_of(*found, separator_);
  }
  text_ += '\n';
}

void AnswerOutput::write(const std::vector<Json>& answers) {
  for (const Json& answer : answers) {
    ++row_;
    if (separator_ == '\0') {
      text_ += to_line(answer) + '\n';
    } else {
      add_lines(answer);
    }
  }
  if (file_) {
    file_->write(std::string_view(text_));
    bytes_ += text_.size();
    const bool is_due = recorded_ == 0 || Clock::steady().now() - recorded_ >= kRecordSeconds;
    if (!identity_.empty() && is_due) write_record();
  } else {
    std::cout << text_;
    if (!flush_standard_output()) throw ReaderLeft();
  }
  text_.clear();
}

void AnswerOutput::finish() {
  if (!file_) return;
  file_->sync();
  file_->close();
  FileSystem& files = FileSystem::local();
  files.rename(temporary_, path_);
  if (files.exists(record_path())) files.remove_file(record_path());
  files.sync_directory(parent_path(path_));
  file_.reset();
}

}  // namespace finetune::cli
