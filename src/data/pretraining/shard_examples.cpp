// SPDX-License-Identifier: MIT
#include "finetune/data/shard_examples.h"

#include <algorithm>
#include <map>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/hash.h"
#include "finetune/base/interrupt.h"
#include "finetune/base/log.h"
#include "finetune/base/text.h"
#include "finetune/data/data_files.h"
#include "finetune/data/shard_writer.h"

namespace finetune {
namespace {

// Returns the number after "-of-", as in "examples-00003-of-00016.tfrecord"; 0 if there is none.
int64_t announced_shards(const std::string& path) {
  const std::string name = file_name(path);
  const size_t of = name.rfind("-of-");
  if (of == std::string::npos) return 0;
  int64_t count = 0;
  for (size_t at = of + 4; at < name.size() && name[at] >= '0' && name[at] <= '9'; ++at) {
    if (count > 1'000'000) return 0;
    count = 10 * count + (name[at] - '0');
  }
  return count;
}

// Checks that the numbers in the file names are complete: a killed command leaves only some of its
// shards.
void check_all_are_there(const std::vector<std::string>& paths, const std::string& key) {
  std::map<std::pair<std::string, int64_t>, int64_t> found;  // folder and announced -> there
  for (const std::string& path : paths) {
    if (const int64_t count = announced_shards(path)) ++found[{parent_path(path), count}];
  }
  for (const auto& [announced, count] : found) {
    const auto& [folder, all] = announced;
    if (count >= all) continue;
    const std::string what = format_text("{}: '{}' gives {} of {} shards", key, folder, count, all);
    const std::string manifest = join_path(folder, kShardManifest);
    if (!FileSystem::local().exists(manifest)) {
      log::warning(what + ", as their names say");
      continue;
    }
    throw Error(ErrorKind::kData, what +
                                      ": let finetune prepare write the others first (run it "
                                      "again), or delete '" +
                                      manifest + "' to train on these alone");
  }
}

}  // namespace

ShardExamples::ShardExamples(const std::vector<std::string>& files, const ShardOptions& options)
    : options_(options), first_{0} {
  Hasher hasher;
  const std::vector<std::string> names = expand_files(files, options_.key);
  check_all_are_there(names, options_.key);
  for (const std::string& name : names) {
    interrupt::throw_if_requested("reading " + options_.key);
    const auto show = [&, after = static_cast<double>(files_.size())](double fraction) {
      if (options.progress)
        options.progress((after + fraction) / static_cast<double>(names.size()));
    };
    files_.emplace_back(FileSystem::local().open(name), name, show);
    first_.push_back(first_.back() + files_.back().size());
    hasher.update(files_.back().fingerprint());
    show(1.0);
  }
  size_ = std::min(first_.back(), options_.max_samples.value_or(INT64_MAX));
  // Detects shards of another tokenizer or length at once.
  bool any_pair = false;
  for (size_t file = 0; file < files_.size() && first_[file] < size_; ++file) {
    const PretrainingExample first = example({.index = first_[file], .epoch = 0});
    any_pair = any_pair || std::ranges::count(first.segment_ids, 1) > 0;
  }
  if (options_.next_sentence && !any_pair) {
    log::warning(options_.key +
                 ": the first examples have no second segment, so there is no next sentence to "
                 "learn from them; set use_nsp: false if they were made without");
  }
  extent_.longest = options_.max_seq_length;
  extent_.bytes = first_.back() * static_cast<int64_t>(sizeof(uint64_t));
  const std::string rest = format_text("{}{}", size_, options_.next_sentence ? " pairs" : "");
  hasher.update(rest);
  fingerprint_ = hasher.hex();
}

std::pair<size_t, int64_t> ShardExamples::find(int64_t index) const {
  const auto after = std::upper_bound(first_.begin(), first_.end(), index);
  const auto file = static_cast<size_t>(after - first_.begin()) - 1;
  return {file, index - first_[file]};
}

void ShardExamples::make(int64_t index, const SampleKey&, PretrainingExample& example) const {
  thread_local std::string data;
  FT_CHECK(index >= 0 && index < size_, "sample index out of range");
  const auto [file, number] = find(index);
  const TfRecordFile& shard = files_[file];
  const int64_t record = number;
  shard.read(record, data);
  decode_example(
      data, [&shard, record] { return shard.position(record); }, options_, example);
}

}  // namespace finetune
