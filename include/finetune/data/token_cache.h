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
// path or time), the tokenizer's files, every option that changes a token and the version of this
// program. It is built in blocks: an interrupted build resumes after the last complete block.
// Processes share it, and machines share copies of it.
//
//   building.json  the data files as they were when building began; gone when it is done
//   block-<n>      samples of consecutive rows (src/data/token_block.h), checked as they are read
//   tokens.json    written last: the data files with the hashes of their content, the blocks, the
//                  totals
//   seen.json      size and time of the data files when their content was last verified
//   used           time of the last use; locked by readers
//   lock           locked by the builder
//
// Building an entry deletes those that were not used for 30 days.
struct TokenCacheOptions {
  std::string folder = {};                     // empty: nothing is kept
  bool overwrite = false;                      // tokenise again
  bool required = false;                       // Error(kIo) where nothing can be kept
  int64_t tokens_of_block = int64_t{8} << 20;  // about; what an interruption loses at most
  // Of blocks, all or spread over them; the rest is looked at when it is first read.
  int64_t bytes_checked_at_start = int64_t{64} << 20;
  // Entries that nobody has used for so long are removed where a new one is built.
  std::chrono::seconds kept_unused = std::chrono::hours(30 * 24);

  // A second, possibly slow location. `fetch` copies the cache `name` from there into the new
  // folder `path`, completely or not at all, and returns whether it did; `keep` is called for each
  // cache that is used. Neither throws Error.
  std::function<bool(const std::string& name, const std::string& path)> fetch = {};
  std::function<void(const std::string& path, const std::string& name)> keep = {};

  // Without a usable folder all tokens are kept in memory: the bytes that this process may still
  // take, of which they may fill half. Not set: no limit.
  std::function<int64_t()> memory_left = {};

  ShowStep show = {};  // hashing and checking, which may last where files are large
};

// count_rows() of data_files.h, which reads the files only where they are not those that were
// counted last.
[[nodiscard]] int64_t count_rows(const std::vector<std::string>& patterns, const std::string& key,
                                 const TokenCacheOptions& cache,
                                 const std::function<void(double)>& progress = {},
                                 const ReadingOptions& reading = {});

}  // namespace finetune
