// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

#include "finetune/base/locked_file.h"

namespace finetune {

inline constexpr const char* kBuildLock = "lock";  // in an entry's folder: locked by the builder
inline constexpr const char* kUsed = "used";       // locked by readers; its time is the last use

// Folders next to the entries for the results that data/file_findings.h stores.
inline constexpr std::array<const char*, 4> kFindings = {"rows", "labels", "contents", "texts"};

// Marks an entry of the cache as in use, and keeps other processes from removing it. Best effort:
// does nothing if the folder is read-only or has no locks.
class EntryUse {
 public:
  explicit EntryUse(const std::string& folder);

 private:
  LockedFile file_;
};

// The content of a cache's folder after remove_unused_entries().
struct CacheContent {
  int64_t entries = 0;
  uint64_t bytes = 0;
  int64_t removed = 0;
  uint64_t removed_bytes = 0;
};

// Deletes the entries that were unused for that long, except those that a live process builds or
// reads, or may be using. Also deletes findings of that age. Never throws Error.
[[nodiscard]] CacheContent remove_unused_entries(const std::string& folder,
                                                 std::chrono::seconds unused);

}  // namespace finetune
