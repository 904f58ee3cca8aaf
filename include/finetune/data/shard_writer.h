// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "finetune/base/file_system.h"
#include "finetune/data/shard_examples.h"

namespace finetune {

struct ShardWriterOptions {
  std::string folder = {};  // created if missing
  int64_t shards = 16;      // at most the number of examples
  int64_t threads = 1;      // does not affect the output
  ShardLayout layout = {};
  uint64_t seed = 42;  // of the order of the examples
  // Hash of all other inputs that affect the output; combined with the data's fingerprint.
  std::string fingerprint = {};
  std::function<void(int64_t)> progress = {};  // examples written or kept, on the caller's thread
};

struct WrittenShards {
  int64_t examples = 0;
  int64_t written = 0;  // shards
  int64_t kept = 0;     // shards that were complete already
};

// "examples-00003-of-00016.tfrecord"
[[nodiscard]] std::string shard_name(int64_t shard, int64_t shards);

// Writes the first epoch of `data` as TFRecord shards of similar size; each is a random sample of
// all examples. Shards are written atomically (temporary file, sync, rename), so that the next call
// continues an interrupted one: it keeps complete shards and writes the others, with the same
// bytes. prepare.json in the folder records what the shards were made from.
//
// Throws Error(kConfig) if the folder contains shards of other data or options, Error(kIo), and
// Interrupted. Requires: no other writer in the folder.
[[nodiscard]] WrittenShards write_shards(FileSystem& files, const PretrainingDataset& data,
                                         const ShardWriterOptions& options);

}  // namespace finetune
