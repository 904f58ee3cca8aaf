// SPDX-License-Identifier: MIT
#include "finetune/data/cache_entries.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "finetune/base/clock.h"
#include "finetune/base/error.h"
#include "finetune/base/file_system.h"

namespace finetune {
namespace {

namespace fs = std::filesystem;

bool is_entry(std::string_view name) {
  return name.size() == 32 && std::ranges::all_of(name, [](unsigned char c) {
           return std::isdigit(c) != 0 || (c >= 'a' && c <= 'f');
         });
}

// Whether this is the temporary folder of an interrupted copy, or of a base that was not quantised
// to its end.
bool is_unfinished(std::string_view name) {
  const size_t dot = std::min(name.find('.'), name.size());
  const std::string_view end = name.substr(dot);
  return is_entry(name.substr(0, dot)) &&
         (end.starts_with(".tmp-") || end.starts_with(".partial-"));
}

struct Seen {
  uint64_t bytes = 0;
  int64_t newest = 0;  // seconds since the epoch
};

Seen look_at(const std::string& folder) {
  Seen seen;
  for (const std::string& name : FileSystem::local().list(folder)) {
    struct stat status = {};
    if (::lstat(join_path(folder, name).c_str(), &status) != 0) continue;
    seen.bytes += static_cast<uint64_t>(status.st_size);
    seen.newest = std::max(seen.newest, static_cast<int64_t>(status.st_mtime));
  }
  return seen;
}

int64_t age_of(const std::string& file, int64_t now) {
  struct stat status = {};
  return ::lstat(file.c_str(), &status) == 0 ? now - static_cast<int64_t>(status.st_mtime) : 0;
}

// Deletes old findings; a finding's file time is its last use.
void remove_unused_findings(const std::string& folder, int64_t now, std::chrono::seconds unused) {
  FileSystem& files = FileSystem::local();
  for (const char* kind : kFindings) {
    const std::string answers = join_path(folder, kind);
    if (files.type(answers) != FileType::kDirectory) continue;
    for (const std::string& name : files.list(answers)) {
      const std::string path = join_path(answers, name);
      const std::string_view stem = std::string_view(name).substr(0, name.find('.'));
      if (!is_entry(stem) || !name.ends_with(".json")) continue;
      if (age_of(path, now) > unused.count()) files.remove_file(path);
    }
  }
}

// Tries to acquire an exclusive lock; creates the file if it is missing.
class SoleHold {
 public:
  explicit SoleHold(const std::string& path)
      : is_held_(file_.open(path) && file_.lock() == LockedFile::Outcome::kLocked) {}
  [[nodiscard]] bool is_held() const { return is_held_; }

 private:
  LockedFile file_;
  bool is_held_;
};

bool remove_entry(const std::string& folder) {
  const SoleHold building(join_path(folder, kBuildLock));
  const SoleHold reading(join_path(folder, kUsed));
  if (!building.is_held() || !reading.is_held()) return false;
  FileSystem::local().remove_tree(folder);
  return true;
}

}  // namespace

EntryUse::EntryUse(const std::string& folder) {
  if (!file_.open(join_path(folder, kUsed))) return;
  static_cast<void>(file_.lock(LockedFile::Mode::kShared));
  static_cast<void>(::futimens(file_.descriptor(), nullptr));
}

CacheContent remove_unused_entries(const std::string& folder, std::chrono::seconds unused) {
  CacheContent content;
  const auto now = static_cast<int64_t>(unix_seconds());
  try {
    remove_unused_findings(folder, now, unused);
  } catch (const Error&) {
  }
  try {
    for (const std::string& name : FileSystem::local().list(folder)) {
      if (!is_entry(name) && !is_unfinished(name)) continue;
      try {
        const std::string entry = join_path(folder, name);
        const Seen seen = look_at(entry);
        if (now - seen.newest > unused.count() && remove_entry(entry)) {
          ++content.removed;
          content.removed_bytes += seen.bytes;
        } else {
          ++content.entries;
          content.bytes += seen.bytes;
        }
      } catch (const Error&) {  // another process is removing it, or it is not ours
      }
    }
  } catch (const Error&) {
  }
  return content;
}

}  // namespace finetune
