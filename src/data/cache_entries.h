// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

namespace finetune {

inline constexpr const char* kBuildLock = "lock";  // in an entry's folder: locked by the builder
inline constexpr const char* kUsed = "used";       // locked by readers; its time is the last use

// Folders next to the entries: what data/file_findings.h stores.
inline constexpr std::array<const char*, 3> kFindings = {"rows", "labels", "contents"};

// Says that an entry of the cache is in use now, and keeps others from removing it. Best effort:
// where the folder is only read, or knows no locks, nothing is said.
class EntryUse {
 public:
  explicit EntryUse(const std::string& folder);
  ~EntryUse();
  EntryUse(const EntryUse&) = delete;
  EntryUse& operator=(const EntryUse&) = delete;

 private:
  int descriptor_ = -1;
};

// What a cache's folder holds after remove_unused_entries().
struct CacheContent {
  int64_t entries = 0;
  uint64_t bytes = 0;
  int64_t removed = 0;
  uint64_t removed_bytes = 0;
};

// Deletes the entries that were not used for that long, except those that a live process builds or
// reads, or might. Deletes findings of that age too. Never throws Error.
[[nodiscard]] CacheContent remove_unused_entries(const std::string& folder,
                                                 std::chrono::seconds unused);

}  // namespace finetune
