// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

namespace finetune {

inline constexpr const char* kBuildLock = "lock";  // of an entry's folder: held by who builds
inline constexpr const char* kUsed = "used";       // held by who reads; its time is the last use

// Folders beside the entries: what data/file_findings.h keeps.
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

// Removes the entries that nobody has used for so long: none that is being built or read by a
// process that lives, and none where that cannot be told. Findings of that age go too. Never throws
// Error.
[[nodiscard]] CacheContent remove_unused_entries(const std::string& folder,
                                                 std::chrono::seconds unused);

}  // namespace finetune
