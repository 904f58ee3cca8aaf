// SPDX-License-Identifier: MIT
#include "finetune/data/shard_writer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <future>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "finetune/base/error.h"
#include "finetune/base/hash.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/json.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/base/thread_pool.h"
#include "finetune/data/data_files.h"
#include "finetune/data/permutation.h"
#include "finetune/data/tf_record.h"

namespace finetune {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kFormat = 1;
constexpr char kUnfinished[] = ".unfinished";
constexpr size_t kBytesOfWrite = size_t{1} << 20;

class ShardWriter {
 public:
  ShardWriter(FileSystem& files, const PretrainingDataset& data, const ShardWriterOptions& options)
      : files_(files),
        data_(data),
        options_(options),
        shards_(std::min(options.shards, data.size())),
        order_(data.size(), options.seed, 0) {}

  WrittenShards write() {
    files_.make_directories(options_.folder);
    claim_folder();
    std::vector<int64_t> missing;
    WrittenShards result{.examples = data_.size()};
    for (int64_t shard = 0; shard < shards_; ++shard) {
      if (is_whole(shard)) {
        done_ += size_of(shard);
        ++result.kept;
      } else {
        missing.push_back(shard);
      }
    }
    write_all(missing);
    result.written = std::ssize(missing);
    return result;
  }

 private:
  [[nodiscard]] std::string path_of(int64_t shard) const {
    return join_path(options_.folder, shard_name(shard, shards_));
  }
  // Returns the number of examples in a shard: indices shard, shard + shards, ... of the order.
  [[nodiscard]] int64_t size_of(int64_t shard) const {
    return (data_.size() - shard + shards_ - 1) / shards_;
  }

  [[nodiscard]] std::string fingerprint() const {
    Hasher hasher;
    const ShardLayout& layout = options_.layout;
    hasher.update(data_.fingerprint());
    hasher.update(options_.fingerprint);
    for (const int64_t number : {kFormat, layout.max_seq_length, layout.max_predictions,
                                 int64_t{layout.pad_id}, static_cast<int64_t>(options_.seed)}) {
      hasher.update(format_text("{},", number));
    }
    return hasher.hex();
  }

  // Writes the manifest first, so that later files in the folder belong to it.
  void claim_folder() {
    const std::string path = join_path(options_.folder, kShardManifest);
    const Json manifest = {{"format_version", kFormat},
                           {"fingerprint", fingerprint()},
                           {"examples", data_.size()},
                           {"shards", shards_}};
    if (files_.type(path) == FileType::kFile) {
      const Json there = parse_json(files_.read_all(path, 1 << 16), path);
      if (there != manifest) {
        throw Error(ErrorKind::kConfig,
                    "prepare_output_dir: '" + options_.folder +
                        "' holds shards that were made from other data or with other keys; choose "
                        "another folder, or delete that one to write them again");
      }
      return;
    }
    for (const std::string& name : files_.list(options_.folder)) {
      if (!is_tf_record(name)) continue;
      throw Error(ErrorKind::kConfig, "prepare_output_dir: '" + options_.folder + "' holds '" +
                                          name +
                                          "', which this command did not write; choose "
                                          "another folder");
    }
    files_.write_atomically(path, manifest.dump(2) + "\n");
  }

  [[nodiscard]] bool is_whole(int64_t shard) const {
    const std::string path = path_of(shard);
    if (files_.type(path) != FileType::kFile) return false;
    try {
      const TfRecordFile there(files_.open(path), path);
      if (there.size() == size_of(shard)) {
        for (int64_t i = 0; i < there.size(); ++i)
          static_cast<void>(there.read(i));  // verifies its checksum
        return true;
      }
      log::warning("'" + path + "' holds another number of examples; it is rewritten");
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kData) throw;
      log::warning(std::string(error.what()) + "; it is rewritten");
    }
    return false;
  }

  void write_all(const std::vector<int64_t>& missing) {
    constexpr auto kBetweenLooks = std::chrono::milliseconds(100);
    ThreadPool pool(options_.threads > 1 ? options_.threads : 0);
    std::vector<std::future<void>> results;
    for (const int64_t shard : missing) {
      results.push_back(pool.submit([this, shard] { write_shard(shard); }));
      if (pool.size() == 0) show_progress();
    }
    std::exception_ptr failure;
    for (std::future<void>& result : results) {
      while (result.wait_for(kBetweenLooks) != std::future_status::ready) show_progress();
      try {
        result.get();
      } catch (...) {
        stop_ = true;
        if (!failure) failure = std::current_exception();
      }
    }
    if (failure) std::rethrow_exception(failure);
    show_progress();
  }

  void show_progress() const {
    if (options_.progress) options_.progress(done_);
  }

  void write_shard(int64_t shard) {
    if (stop_) return;
    const std::string path = path_of(shard);
    const std::string unfinished = path + kUnfinished;
    try {
      const auto file = files_.create(unfinished);
      std::string bytes;
      PretrainingExample example;
      for (int64_t position = shard; position < data_.size() && !stop_; position += shards_) {
        interrupt::throw_if_requested("preparing examples");
        const int64_t index = order_[position];
        data_.make(index, {.index = index, .epoch = 0}, example);
        bytes += tf_record(encode_example(example, options_.layout));
        ++done_;
        if (bytes.size() < kBytesOfWrite) continue;
        file->write(bytes);
        bytes.clear();
      }
      if (!stop_) {
        file->write(bytes);
        file->sync();
        file->close();
        files_.rename(unfinished, path);
        files_.sync_directory(options_.folder);
        return;
      }
    } catch (...) {
      stop_ = true;
      discard(unfinished);
      throw;
    }
    discard(unfinished);
  }

  // Frees space for other shards; a file that cannot be removed is overwritten by the next call.
  void discard(const std::string& path) {
    try {
      if (files_.exists(path)) files_.remove_file(path);
    } catch (const Error&) {
      log::warning("'" + path + "' cannot be removed");
    }
  }

  FileSystem& files_;
  const PretrainingDataset& data_;
  const ShardWriterOptions& options_;
  int64_t shards_;
  Permutation order_;
  std::atomic<int64_t> done_ = 0;
  std::atomic<bool> stop_ = false;
};

}  // namespace

std::string shard_name(int64_t shard, int64_t shards) {
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "examples-%05lld-of-%05lld.tfrecord",
                static_cast<long long>(shard), static_cast<long long>(shards));
  return name.data();
}

WrittenShards write_shards(FileSystem& files, const PretrainingDataset& data,
                           const ShardWriterOptions& options) {
  FT_CHECK(options.shards > 0 && data.size() > 0, "shards hold something");
  return ShardWriter(files, data, options).write();
}

}  // namespace finetune
