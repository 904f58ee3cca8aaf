// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "finetune/data/token_cache.h"

namespace finetune {

// A compact record of a set of files of any size, for recognising them later.
struct FileRecord {
  int64_t files = 0;
  uint64_t bytes = 0;     // of all of them
  std::string seen = {};  // hash of paths, sizes, sampled blocks and times: equal means unchanged
  std::string contents = {};  // hash of every byte, in order; empty: unknown
};

// Makes a record with empty `contents`. Throws Error(kIo) and Interrupted.
[[nodiscard]] FileRecord look_at_files(const std::vector<std::string>& paths,
                                       const ShowStep& show = {});

// Returns a hash of every byte of the files, and of the endings that determine their format. Reads
// the files only if the cache has no hash for their current size and time. Throws Error(kIo) and
// Interrupted.
[[nodiscard]] std::string contents_of_files(const TokenCacheOptions& cache,
                                            const std::vector<std::string>& paths);
// The same if the cache has it, otherwise empty; reads nothing.
[[nodiscard]] std::string known_contents(const TokenCacheOptions& cache,
                                         const std::vector<std::string>& paths);

// Returns another hash over files: the cached one for the files in their current state, or the
// result of `compute`, which is then cached. `what` names the hash.
[[nodiscard]] std::string remembered_hash(const TokenCacheOptions& cache, const std::string& what,
                                          const std::vector<std::string>& paths,
                                          const std::function<std::string()>& compute);

}  // namespace finetune
