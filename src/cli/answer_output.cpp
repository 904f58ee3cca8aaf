// SPDX-License-Identifier: MIT
#include "cli/answer_output.h"

#include <unistd.h>

#include <iostream>

#include "cli/standard_output.h"
#include "finetune/base/error.h"
#include "finetune/base/text.h"

namespace finetune::cli {
namespace {

using Json = AnswerOutput::Json;

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

AnswerOutput::AnswerOutput(const std::optional<std::string>& path) {
  if (!path) return;
  path_ = *path;
  separator_ = separator_of(path_);
  if (FileSystem::local().type(path_) == FileType::kDirectory) {
    throw Error(ErrorKind::kUsage, "--output: '" + path_ + "' is a folder; name a file");
  }
  // Uses the name pattern of FileSystem::write_atomically, whose files are recognised as leftovers.
  temporary_ =
      join_path(parent_path(path_), format_text(".tmp-{}.{}", file_name(path_), ::getpid()));
  file_ = FileSystem::local().create(temporary_);
}

AnswerOutput::~AnswerOutput() {
  if (!file_) return;
  file_.reset();
  try {
    FileSystem::local().remove_file(temporary_);
  } catch (const Error&) {  // another error is being reported
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
  FileSystem::local().rename(temporary_, path_);
  FileSystem::local().sync_directory(parent_path(path_));
  file_.reset();
}

}  // namespace finetune::cli
