// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "finetune/data/data_files.h"
#include "finetune/data/long_step.h"

namespace finetune {

// A cache of tokenised data: a folder below `folder`, named by a hash of the data's content (not
// path or time), the tokenizer's files, every option that affects tokens and the version of this
// program. It is built in blocks: an interrupted build resumes after the last complete block.
// Processes share a cache; machines share copies of it.
//
//   building.json  the data files when the build began; deleted when it is complete
//   block-<n>      samples of consecutive rows (src/data/cache/token_block.h), checked when read
//   tokens.json    written last: the data files with their content hashes, the blocks, the totals
//   seen.json      size and time of the data files when their content was last verified
//   used           time of the last use; locked by readers
//   lock           locked by the builder
//
// Building an entry deletes entries that were unused for `kept_unused`.
struct TokenCacheOptions {
  std::string folder = {};  // empty: no cache
  bool overwrite = false;   // tokenise again
  bool required = false;    // Error(kIo) if the cache cannot be written
  // Approximate; an interruption loses at most this much.
  int64_t tokens_of_block = int64_t{8} << 20;
  // Bytes to verify at startup, all or a sample spread over the blocks; the rest is checked when
  // first read.
  int64_t bytes_checked_at_start = int64_t{64} << 20;
  // Entries that were unused for this long are deleted when a new one is built.
  std::chrono::seconds kept_unused = std::chrono::hours(30 * 24);

  // A second, possibly slow location. `fetch` copies the cache `name` from there atomically into
  // the new folder `path`, and returns whether it did; `keep` is called for each cache in use.
  // Neither throws Error.
  std::function<bool(const std::string& name, const std::string& path)> fetch = {};
  std::function<void(const std::string& path, const std::string& name)> keep = {};

  // Without a usable folder all tokens are kept in memory and may take half of the bytes that this
  // function returns: what the process may still allocate. Unset: no limit.
  std::function<int64_t()> memory_left = {};

  ShowStep show = {};  // for hashing and checking, which are slow for large files
};

// The same as count_rows() of data_files.h, but reads the files only if they have changed since
// they were last counted.
[[nodiscard]] int64_t count_rows(const std::vector<std::string>& patterns, const std::string& key,
                                 const TokenCacheOptions& cache,
                                 const std::function<void(double)>& progress = {},
                                 const ReadingOptions& reading = {});

}  // namespace finetune
