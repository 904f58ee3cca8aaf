// SPDX-License-Identifier: MIT
#include "data/readers/path_pattern.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <span>
#include <system_error>

#include "finetune/base/file_system.h"
#include "finetune/base/interrupt.h"

namespace finetune {
namespace {

namespace fs = std::filesystem;

using Parts = std::span<const std::string>;

bool matches_name(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), FNM_PERIOD | FNM_NOESCAPE) == 0;
}

bool matches_parts(Parts pattern, Parts path) {
  if (pattern.empty()) return path.empty();
  if (pattern.front() != "**") {
    return !path.empty() && matches_name(pattern.front(), path.front()) &&
           matches_parts(pattern.subspan(1), path.subspan(1));
  }
  if (pattern.size() == 1) return !path.empty();
  for (size_t skipped = 0; skipped <= path.size(); ++skipped) {
    if (matches_parts(pattern.subspan(1), path.subspan(skipped))) return true;
  }
  return false;
}

// Names in a folder, or none if it cannot be read.
std::vector<std::string> names_in(const std::string& folder) {
  interrupt::throw_if_requested("looking for files");
  std::vector<std::string> names;
  std::error_code problem;
  fs::directory_iterator entries(folder.empty() ? "." : folder, problem);
  if (problem) return names;
  for (const auto& entry : entries) names.push_back(entry.path().filename().string());
  return names;
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// Visits folders and files. A link to a folder that is being visited already is not followed.
class Walk {
 public:
  void files_below(const std::string& folder, const std::string& before,
                   std::vector<std::string>& found) {
    const bool is_new = enter(folder);
    if (!is_new) return;
    for (const std::string& name : names_in(folder)) {
      if (name.starts_with('.')) continue;
      const std::string path = join_path(folder, name);
      const std::string relative = before.empty() ? name : before + "/" + name;
      if (!is_folder(path)) {
        found.push_back(relative);
      } else if (!name.starts_with("__")) {
        files_below(path, relative, found);
      }
    }
    leave();
  }

  void glob(const std::string& base, Parts pattern, std::vector<std::string>& found) {
    const std::string& part = pattern.front();
    const Parts rest = pattern.subspan(1);
    const auto join = [&](const std::string& name) {
      return base.empty() ? name : base == "/" ? base + name : base + "/" + name;
    };
    if (part == "**") {
      if (!enter(base)) return;
      if (!rest.empty()) glob(base, rest, found);
      for (const std::string& name : names_in(base)) {
        if (name.starts_with('.')) continue;
        if (is_folder(join(name))) {
          glob(join(name), pattern, found);
        } else if (rest.empty()) {
          found.push_back(join(name));
        }
      }
      return leave();
    }
    const std::vector<std::string> names =
        is_pattern(part) ? names_in(base) : std::vector<std::string>{part};
    for (const std::string& name : names) {
      if (is_pattern(part) && !matches_name(part, name)) continue;
      std::error_code ignored;
      if (!rest.empty() && is_folder(join(name))) {
        glob(join(name), rest, found);
      } else if (rest.empty() && fs::exists(join(name), ignored) && !is_folder(join(name))) {
        found.push_back(join(name));
      }
    }
  }

 private:
  bool enter(const std::string& folder) {
    std::error_code ignored;
    const std::string real = fs::canonical(folder.empty() ? "." : folder, ignored).string();
    if (std::ranges::find(inside_, real) != inside_.end()) return false;
    inside_.push_back(real);
    return true;
  }
  void leave() { inside_.pop_back(); }

  std::vector<std::string> inside_;
};

}  // namespace

bool is_pattern(std::string_view text) {
  return text.find_first_of("*?[") != std::string_view::npos;
}

std::vector<std::string> path_parts(std::string_view path) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (end > begin) parts.emplace_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool matches_pattern(std::string_view path, std::string_view pattern) {
  return matches_parts(path_parts(pattern), path_parts(path));
}

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> found;
  Walk().files_below(folder, "", found);
  std::ranges::sort(found);
  return found;
}

std::vector<std::string> glob_files(const std::string& pattern) {
  const std::vector<std::string> parts = path_parts(pattern);
  std::vector<std::string> found;
  if (!parts.empty()) Walk().glob(pattern.starts_with('/') ? "/" : "", parts, found);
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace finetune
