// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "finetune/data/token_cache.h"

namespace finetune {

// A set of files in a few words, however many there are, so that they can be recognised later.
struct FileRecord {
  int64_t files = 0;
  uint64_t bytes = 0;     // of all of them
  std::string seen = {};  // hash of paths, sizes, sampled blocks and times: equal means untouched
  std::string contents = {};  // hash of every byte, in order; empty: not known
};

// `contents` stays empty. Throws Error(kIo) and Interrupted.
[[nodiscard]] FileRecord look_at_files(const std::vector<std::string>& paths,
                                       const ShowStep& show = {});

// Hash of every byte of the files, and of the endings that determine their format. The files are
// read only if the cache has no hash for their current size and time. Throws Error(kIo) and
// Interrupted.
[[nodiscard]] std::string contents_of_files(const TokenCacheOptions& cache,
                                            const std::vector<std::string>& paths);
// The same where the cache knows it; else empty, and nothing is read.
[[nodiscard]] std::string known_contents(const TokenCacheOptions& cache,
                                         const std::vector<std::string>& paths);

// Another hash over files: what `compute` returned for the files as they are, kept in the cache.
// `what` names the hash.
[[nodiscard]] std::string remembered_hash(const TokenCacheOptions& cache, const std::string& what,
                                          const std::vector<std::string>& paths,
                                          const std::function<std::string()>& compute);

}  // namespace finetune
