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

// Where tokenised data are kept. A cache is a folder below `folder`, named by what it was made of:
// the data by content (not by path or time), the tokenizer's files, every option that changes a
// token and the version of this program. It is built a block at a time: who is interrupted goes on
// behind the last block. It is shared by processes and, copied, by machines.
//
//   building.json  the data files as they were when building began; gone when it is done
//   block-<n>      samples of consecutive rows (src/data/token_block.h), checked as they are read
//   tokens.json    written last: the data files with the hashes of their content, the blocks, the
//                  totals
//   seen.json      the data files as they were last found to be of that content
//   used           when it was last used; held by who reads
//   lock           held by who builds
//
// Whoever builds an entry removes those that nobody has used for long.
struct TokenCacheOptions {
  std::string folder = {};                     // empty: nothing is kept
  bool overwrite = false;                      // tokenise again
  bool required = false;                       // Error(kIo) where nothing can be kept
  int64_t tokens_of_block = int64_t{8} << 20;  // about; what an interruption loses at most
  // Of blocks, all or spread over them; the rest is looked at when it is first read.
  int64_t bytes_checked_at_start = int64_t{64} << 20;
  // Entries that nobody has used for so long are removed where a new one is built.
  std::chrono::seconds kept_unused = std::chrono::hours(30 * 24);

  // A second place, which may be slow. `fetch` makes the new folder `path` out of the cache `name`
  // that lies there, whole or not at all, and says whether it did; `keep` is told of each cache
  // that is used. Neither throws Error.
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
