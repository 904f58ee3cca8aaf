// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

namespace finetune {

struct FoundFiles {
  std::vector<std::string> files;
  std::string report;  // one line: what was taken and what was left out; empty: all was taken
};

// Returns the data files of a folder that belong to the split of a key ("train_file",
// "validation_file", "test_file"), as load_dataset() and load_from_disk() of `datasets` find them:
// a folder that save_to_disk() wrote, else the `configs` of a data card (README.md), else files and
// subfolders by known endings and the names of splits. Hidden files, caches, README and LICENSE are
// never data. A folder of BEIR gives three files for validation_file and test_file
// (retrieval_files.h). Throws Error(kConfig), which names `key`, if no file is found, the split is
// not there, or files of two kinds are.
[[nodiscard]] FoundFiles find_in_folder(const std::string& folder, const std::string& key);

// Returns the files that match a pattern of Python's glob(recursive=True), in byte order: `*`, `?`
// and `[...]` match within a name, `**` any number of folders. Throws Error(kConfig), which names
// `key`, if there are none, if "**" is not a whole part, or if files of two kinds match.
[[nodiscard]] FoundFiles find_matches(const std::string& pattern, const std::string& key);

}  // namespace finetune
