// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "finetune/base/file_system.h"
#include "finetune/data/shard_examples.h"

namespace finetune {

struct ShardWriterOptions {
  std::string folder = {};  // made where it is missing
  int64_t shards = 16;      // at most as many as there are examples
  int64_t threads = 1;      // never changes a byte
  ShardLayout layout = {};
  uint64_t seed = 42;            // of the order of the examples
  std::string fingerprint = {};  // of whatever else decides the bytes; with the data's own
  std::function<void(int64_t)> progress = {};  // examples written or kept, on the caller's thread
};

struct WrittenShards {
  int64_t examples = 0;
  int64_t written = 0;  // shards
  int64_t kept = 0;     // shards that were complete already
};

// Stored with the shards: their sources and their number.
inline constexpr char kShardManifest[] = "prepare.json";

// "examples-00003-of-00016.tfrecord"
[[nodiscard]] std::string shard_name(int64_t shard, int64_t shards);

// Writes the first epoch of `data` as TFRecord shards of about the same size; each is a random
// sample of all examples. A shard is complete or absent (temporary file, sync, rename), so that the
// next call continues an interrupted one: complete shards are kept, the others written, and the
// result has the same bytes. prepare.json in the folder records what they were made from.
//
// Throws Error(kConfig) where the folder holds shards of other data or options, Error(kIo), and
// Interrupted. Requires: no other writer in the folder.
[[nodiscard]] WrittenShards write_shards(FileSystem& files, const PretrainingDataset& data,
                                         const ShardWriterOptions& options);

}  // namespace finetune
