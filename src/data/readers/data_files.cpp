// SPDX-License-Identifier: MIT
#include "finetune/data/data_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string_view>

#include "data/readers/byte_source.h"
#include "data/readers/data_folder.h"
#include "data/readers/file_format.h"
#include "data/readers/path_pattern.h"
#include "data/readers/records.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/base/nearest.h"
#include "finetune/base/text.h"
#include "finetune/data/tf_record.h"

namespace finetune {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 7> kUnreadable = {".bz2",  ".xz",  ".zip", ".tar",
                                                         ".xlsx", ".pdf", ".docx"};

// Returns the ending of a path without that of packing, in lower case and with its dot.
std::string data_ending(const std::string& path) {
  return lower_case(fs::path(without_packing(path)).extension().string());
}

// Logs a line once, however often the same key is read.
void log_once(const std::string& line) {
  static std::mutex mutex;
  static std::set<std::string> logged;
  const std::lock_guard lock(mutex);
  if (!line.empty() && logged.insert(line).second) log::info(line);
}

[[noreturn]] void fail_missing(const std::string& path, const std::string& key) {
  if (path.find("://") != std::string::npos) {
    throw Error(ErrorKind::kConfig, key + ": '" + path +
                                        "' is an address, and data are read from files; fetch it "
                                        "first (curl, hf download) and name the file");
  }
  const std::string folder = parent_path(path);
  std::vector<std::string> names;
  std::error_code ignored;
  if (std::filesystem::is_directory(folder.empty() ? "." : folder, ignored)) {
    names = FileSystem::local().list(folder.empty() ? "." : folder);
  }
  const std::string hint = did_you_mean(file_name(path), names);
  throw Error(ErrorKind::kConfig, key + ": '" + path + "' does not exist" + hint +
                                      (hint.empty() ? "; check the path" : ""));
}

void check_file(const std::string& path, const std::string& key) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    fail_missing(path, key);
  }
  if (fs::is_fifo(status) || fs::is_socket(status) || fs::is_character_file(status)) {
    throw Error(ErrorKind::kData, key + ": '" + path +
                                      "' is a pipe or device, and data are read more than once; "
                                      "write what it gives to a file");
  }
  if (fs::is_regular_file(status) && fs::file_size(path, error) == 0 && !error) {
    throw Error(ErrorKind::kData,
                key + ": '" + path + "' is empty; take it out of the list or fill it");
  }
}

}  // namespace

std::optional<FileKind> kind_by_ending(const std::string& path) {
  static const std::map<std::string, FileKind, std::less<>> kKinds = {
      {".jsonl", FileKind::kJsonLines}, {".ndjson", FileKind::kJsonLines},
      {".json", FileKind::kJson},       {".csv", FileKind::kCsv},
      {".tsv", FileKind::kTsv},         {".conll", FileKind::kConll},
      {".iob", FileKind::kConll},       {".bio", FileKind::kConll},
      {".parquet", FileKind::kParquet}, {".arrow", FileKind::kArrow},
      {".feather", FileKind::kArrow},   {".txt", FileKind::kText},
      {".text", FileKind::kText},       {".tokens", FileKind::kText},
      {".raw", FileKind::kText}};
  const auto found = kKinds.find(data_ending(path));
  if (found != kKinds.end()) return found->second;
  if (is_tf_record(without_packing(path))) return FileKind::kTfRecord;
  return std::nullopt;
}

FileKind file_kind(const std::string& path) {
  if (const auto kind = kind_by_ending(path)) return *kind;
  const std::string ending = data_ending(path);
  if (std::ranges::find(kUnreadable, ending) != kUnreadable.end()) {
    throw Error(ErrorKind::kData,
                "'" + path + "': " + ending +
                    " files cannot be read; convert it to plain text (one text "
                    "a line, .txt), JSON lines (one object a line, .jsonl) or CSV");
  }
  return FileKind::kText;
}

bool is_plain_text(const std::string& path, const ReadingOptions& reading) {
  if (file_kind(path) != FileKind::kText) return false;
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return true;  // a pipe can be read only once
  const auto open = [&] { return FileSystem::local().open(path); };
  return find_format(path, reading, open).kind == FileKind::kText;
}

std::vector<std::string> expand_files(const std::vector<std::string>& patterns,
                                      const std::string& key) {
  if (patterns.empty()) throw Error(ErrorKind::kConfig, key + " names no file");
  std::vector<std::string> files;
  for (const std::string& pattern : patterns) {
    std::error_code ignored;
    const bool is_folder = fs::is_directory(pattern, ignored);
    if (!is_folder && (!is_pattern(pattern) || fs::exists(pattern, ignored))) {
      files.push_back(pattern);
      continue;
    }
    const FoundFiles found = is_folder ? find_in_folder(pattern, key) : find_matches(pattern, key);
    log_once(found.report);
    files.insert(files.end(), found.files.begin(), found.files.end());
  }
  for (const std::string& file : files) check_file(file, key);
  return files;
}

int64_t count_rows(const std::vector<std::string>& patterns, const std::string& key,
                   const std::function<void(double)>& progress, const ReadingOptions& reading) {
  constexpr int64_t kRowsBetweenPolls = 256;
  const std::vector<std::string> paths = expand_files(patterns, key);
  uint64_t total = 1;
  for (const std::string& path : paths) total += FileSystem::local().open(path)->size();
  int64_t rows = 0;
  uint64_t after = 0;
  for (const std::string& path : paths) {
    const auto open = [&] { return FileSystem::local().open(path); };
    const auto records = read_records(open(), path, find_format(path, reading, open));
    Record record;
    while (records->next(record)) {
      if (++rows % kRowsBetweenPolls != 0) continue;
      interrupt::throw_if_requested("counting rows");
      if (progress) {
        progress(static_cast<double>(after + records->offset()) / static_cast<double>(total));
      }
    }
    after += records->size();
  }
  return rows;
}

RowSplit split_rows(int64_t rows, int64_t percentage) {
  FT_CHECK(rows >= 0 && rows < (int64_t{1} << 50), "a number of rows");
  // Rounds like Python's round(): half to even.
  const int64_t hundredths = rows * std::clamp<int64_t>(percentage, 0, 100);
  int64_t validation = hundredths / 100;
  const int64_t rest = hundredths % 100;
  if (rest > 50 || (rest == 50 && validation % 2 == 1)) ++validation;
  if (percentage < 0 || percentage > 100 || validation <= 0 || validation >= rows) {
    throw Error(ErrorKind::kConfig,
                format_text("validation_split_percentage {} of {} rows leaves nothing to {}; "
                            "change it or name a validation_file",
                            percentage, rows, validation <= 0 ? "evaluate on" : "train on"));
  }
  return {.train = {.begin = validation, .end = rows},
          .validation = {.begin = 0, .end = validation}};
}

}  // namespace finetune
