// SPDX-License-Identifier: MIT
#include "finetune/report/metrics_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, 4> kMeasuredKeys = {"time", "session", "tokens_per_second",
                                                      "memory_mib"};
constexpr size_t kReadBytes = size_t{1} << 20;
constexpr size_t kLongestLine = size_t{1} << 20;
// Limit of lines pending because of a full disk; older ones are written when the run resumes.
constexpr size_t kMostPending = size_t{8} << 20;

// Normalises a record: the order of keys and the spelling of NaN do not matter.
std::string compared(const Json& record) {
  nlohmann::json sorted = record;
  for (const char* key : kMeasuredKeys) sorted.erase(key);
  return sorted.dump(-1, ' ', true);
}

std::string line_of(const Json& record, const MeasuredAtLog* measured) {
  Json line = {{"step", record.value("step", Json())}, {"epoch", record.value("epoch", Json())}};
  if (measured != nullptr) {
    line["time"] = measured->unix_time;
    line["session"] = measured->session;
    if (measured->tokens_per_second) line["tokens_per_second"] = *measured->tokens_per_second;
    if (measured->memory_mib) line["memory_mib"] = *measured->memory_mib;
  }
  for (const auto& [key, value] : record.items()) {
    if (!line.contains(key)) line[key] = value;
  }
  return line.dump(-1, ' ', true) + "\n";
}

std::optional<Json> parsed_object(std::string_view text, const std::string& where) {
  try {
    Json value = parse_json(text, where, ErrorKind::kData, {.allow_nan = true});
    if (value.is_object()) return value;
  } catch (const Error&) {  // counted by the caller
  }
  return std::nullopt;
}

}  // namespace

MetricsFile::MetricsFile(FileSystem& files, std::string path)
    : files_(files), path_(std::move(path)) {}

MetricsFile::~MetricsFile() {
  if (!pending_.empty()) try_to_write();
}

void MetricsFile::match(const std::vector<Json>& log) {
  file_.reset();
  pending_.clear();
  bytes_ = 0;
  size_t same = 0;
  std::vector<Json> others;  // from the first line that differs; some may belong further down
  try {
    uint64_t last_end = 0;
    read_json_lines(files_, path_, [&](Json&& line, uint64_t end) {
      if (same == log.size()) return false;
      if (!others.empty() || compared(line) != compared(log[same])) {
        others.push_back(std::move(line));
        return others.size() < log.size();
      }
      ++same;
      last_end = end;
      return true;
    });
    bytes_ = last_end;
  } catch (const Error&) {  // rewrite the file
    same = 0;
  }
  write(lines_of_log({log.begin() + static_cast<std::ptrdiff_t>(same), log.end()}, others));
}

void MetricsFile::append(const Json& record, const MeasuredAtLog& measured) {
  write(line_of(record, &measured));
}

bool MetricsFile::is_changed() const {
  if (!file_) return false;
  try {
    return files_.open(path_)->size() != bytes_;
  } catch (const Error& error) {
    return error.system_error() == ENOENT;
  }
}

void MetricsFile::sync() {
  try {
    if (file_) file_->sync();
  } catch (const Error& error) {
    log::debug(std::string(error.what()));
  }
}

void MetricsFile::write(std::string lines) {
  pending_ += lines;
  try_to_write();
  if (pending_.size() > kMostPending) pending_.erase(0, pending_.size() - lines.size());
}

void MetricsFile::try_to_write() {
  try {
    if (!file_) {
      if (files_.exists(path_)) files_.truncate(path_, bytes_);
      file_ = files_.append(path_);
    }
    if (pending_.empty()) return;
    file_->write(pending_);
    bytes_ += pending_.size();
    pending_.clear();
  } catch (const Error& error) {
    file_.reset();  // it may end in a partial line, which the next attempt removes
    if (has_warned_) return;
    has_warned_ = true;
    log::warning(std::string(error.what()) +
                 "; training continues, and the missing lines are written once that is possible");
  }
}

std::string lines_of_log(const std::vector<Json>& log, const std::vector<Json>& lines) {
  std::map<std::string, const Json*> usable;
  for (const Json& line : lines) usable.emplace(compared(line), &line);
  std::string text;
  for (const Json& record : log) {
    const auto found = usable.find(compared(record));
    text += found == usable.end() ? line_of(record, nullptr)
                                  : found->second->dump(-1, ' ', true) + "\n";
  }
  return text;
}

int64_t read_json_lines(FileSystem& files, const std::string& path,
                        const std::function<bool(Json&& line, uint64_t end)>& take, uint64_t from) {
  if (files.type(path) != FileType::kFile) return 0;
  const std::unique_ptr<ReadableFile> file = files.open(path);
  const uint64_t size = file->size();
  int64_t unusable = 0;
  std::string text;  // content from `position` on
  uint64_t position = from;
  bool skips = false;  // within a line that is too long
  for (uint64_t read = from; read < size;) {
    const size_t chunk = static_cast<size_t>(std::min<uint64_t>(kReadBytes, size - read));
    const size_t old = text.size();
    text.resize(old + chunk);
    file->read_at(read, text.data() + old, chunk);
    read += chunk;
    size_t begin = 0;
    for (size_t end = text.find('\n', old); end != std::string::npos;
         end = text.find('\n', begin)) {
      const std::string_view line(text.data() + begin, end - begin);
      begin = end + 1;
      if (std::exchange(skips, false)) continue;
      std::optional<Json> value = parsed_object(line, path);
      if (!value) {
        unusable += line.find_first_not_of(" \t\r") == std::string_view::npos ? 0 : 1;
      } else if (!take(std::move(*value), position + begin)) {
        return unusable;
      }
    }
    position += begin;
    text.erase(0, begin);
    if (text.size() <= kLongestLine) continue;
    unusable += skips ? 0 : 1;
    skips = true;
    position += text.size();
    text.clear();
  }
  return unusable + (text.empty() ? 0 : 1);
}

uint64_t offset_of_last_lines(FileSystem& files, const std::string& path, uint64_t bytes) {
  if (files.type(path) != FileType::kFile) return 0;
  const std::unique_ptr<ReadableFile> file = files.open(path);
  const uint64_t size = file->size();
  if (size <= bytes) return 0;
  std::string text(static_cast<size_t>(bytes), '\0');
  file->read_at(size - bytes, text.data(), text.size());
  const size_t newline = text.find('\n');
  return newline == std::string::npos ? size : size - bytes + newline + 1;
}

}  // namespace finetune
