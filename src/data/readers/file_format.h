// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "finetune/base/file_system.h"
#include "finetune/data/data_files.h"

namespace finetune {

// How one file is read.
struct FileFormat {
  FileKind kind = FileKind::kText;
  char separator = ',';  // of CSV and TSV, like the next two
  bool quotes = true;    // fields may be quoted; false: quotes are ordinary text
  bool header = true;    // the first record names the columns

  friend bool operator==(const FileFormat&, const FileFormat&) = default;
};

// Returns the format of the file `name`: by its ending, by `reading`, and otherwise by its first 4
// MiB. A decision by content is logged once. `open` opens the file.
[[nodiscard]] FileFormat find_format(const std::string& name, const ReadingOptions& reading,
                                     const std::function<std::unique_ptr<ReadableFile>()>& open);

// Returns `reading` without delimiter and quoting if the files give the same formats without them.
[[nodiscard]] ReadingOptions without_plain_keys(const std::vector<std::string>& files,
                                                const ReadingOptions& reading);

// JSON for the keys of caches: null for the defaults, which are then omitted.
[[nodiscard]] nlohmann::ordered_json reading_json(const ReadingOptions& reading);
void add_reading(nlohmann::ordered_json& key, const ReadingOptions& reading);

}  // namespace finetune
