// SPDX-License-Identifier: MIT
#include "finetune/data/data_files.h"

#include <glob.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "data/readers/byte_source.h"
#include "data/readers/file_format.h"
#include "data/readers/records.h"
#include "finetune/base/error.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/text.h"
#include "finetune/data/tf_record.h"

namespace finetune {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 7> kUnreadable = {"bz2",  "xz",  "zip", "tar",
                                                         "xlsx", "pdf", "docx"};

std::string lower_case_ending(const std::string& path) {
  std::string ending = fs::path(without_packing(path)).extension().string();
  if (!ending.empty()) ending.erase(0, 1);
  for (char& c : ending) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return ending;
}

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found = {};
  const int result = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> paths;
  for (size_t i = 0; i < found.gl_pathc; ++i) {
    std::error_code ignored;
    if (!fs::is_directory(found.gl_pathv[i], ignored)) paths.emplace_back(found.gl_pathv[i]);
  }
  ::globfree(&found);
  if (result == GLOB_NOSPACE) throw std::bad_alloc();
  std::sort(paths.begin(), paths.end());  // glob(3) would sort by locale
  return paths;
}

std::vector<std::string> files_in(const std::string& folder, const std::string& key) {
  std::vector<std::string> paths;
  for (const std::string& name : FileSystem::local().list(folder)) {
    std::error_code ignored;
    const std::string path = join_path(folder, name);
    const bool is_data = name.front() != '.' && name != kShardManifest;
    if (is_data && !fs::is_directory(path, ignored)) paths.push_back(path);
  }
  if (paths.empty()) {
    throw Error(ErrorKind::kData, key + ": the folder '" + folder +
                                      "' holds no file (folders in it are not looked into); name "
                                      "its files, for example '" +
                                      (fs::path(folder) / "*" / "*.txt").string() + "'");
  }
  return paths;
}

void check_file(const std::string& path, const std::string& key) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    throw Error(ErrorKind::kConfig, key + ": '" + path + "' does not exist; check the path");
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

FileKind file_kind(const std::string& path) {
  const std::string ending = lower_case_ending(path);
  if (ending == "jsonl" || ending == "ndjson") return FileKind::kJsonLines;
  if (ending == "json") return FileKind::kJson;
  if (ending == "csv") return FileKind::kCsv;
  if (ending == "tsv") return FileKind::kTsv;
  if (ending == "conll" || ending == "iob" || ending == "bio") return FileKind::kConll;
  if (ending == "parquet") return FileKind::kParquet;
  if (ending == "arrow" || ending == "feather") return FileKind::kArrow;
  if (is_tf_record(without_packing(path))) return FileKind::kTfRecord;
  if (std::find(kUnreadable.begin(), kUnreadable.end(), ending) != kUnreadable.end()) {
    throw Error(ErrorKind::kData,
                "'" + path + "': ." + ending +
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
    if (fs::is_directory(pattern, ignored)) {
      const std::vector<std::string> found = files_in(pattern, key);
      files.insert(files.end(), found.begin(), found.end());
      continue;
    }
    if (pattern.find_first_of("*?[") == std::string::npos || fs::exists(pattern, ignored)) {
      files.push_back(pattern);
      continue;
    }
    const std::vector<std::string> found = matches(pattern);
    if (found.empty()) {
      throw Error(ErrorKind::kConfig,
                  key + ": no file matches '" + pattern + "'; check the pattern");
    }
    files.insert(files.end(), found.begin(), found.end());
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
