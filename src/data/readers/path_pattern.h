// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace finetune {

// Whether a text holds one of the characters * ? [.
[[nodiscard]] bool is_pattern(std::string_view text);

// Splits at slashes.
[[nodiscard]] std::vector<std::string> path_parts(std::string_view path);

// Whether a relative path matches a pattern, part by part: * ? and [...] within a part as Python's
// fnmatch reads them, "**" for any number of parts, at the end for at least one.
[[nodiscard]] bool matches_pattern(std::string_view path, std::string_view pattern);

// Returns the paths, relative to `folder`, of all files in it and its subfolders, in byte order;
// without hidden ones and without folders whose names begin with two underscores. Follows links.
// Throws Interrupted.
[[nodiscard]] std::vector<std::string> files_below(const std::string& folder);

// Returns the files that match a pattern as Python's glob(recursive=True) finds them, in byte
// order. Requires: "**" is a whole part. Throws Interrupted.
[[nodiscard]] std::vector<std::string> glob_files(const std::string& pattern);

}  // namespace finetune
