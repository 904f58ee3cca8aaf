// SPDX-License-Identifier: MIT
#include "finetune/data/shard_examples.h"

#include <algorithm>
#include <utility>

#include "finetune/base/error.h"
#include "finetune/base/hash.h"
#include "finetune/base/interrupt.h"
#include "finetune/data/data_files.h"

namespace finetune {

ShardExamples::ShardExamples(const std::vector<std::string>& files, const ShardOptions& options)
    : options_(options), first_{0} {
  Hasher hasher;
  const std::vector<std::string> names = expand_files(files, options_.key);
  for (const std::string& name : names) {
    interrupt::throw_if_requested("reading " + options_.key);
    files_.emplace_back(FileSystem::local().open(name), name);
    first_.push_back(first_.back() + files_.back().size());
    hasher.update(files_.back().fingerprint());
    if (options_.progress) {
      options_.progress(static_cast<double>(files_.size()) / static_cast<double>(names.size()));
    }
  }
  size_ = std::min(first_.back(), options_.max_samples.value_or(INT64_MAX));
  // Shards of another tokenizer or length are found at once.
  for (size_t file = 0; file < files_.size() && first_[file] < size_; ++file) {
    static_cast<void>(example({.index = first_[file], .epoch = 0}));
  }
  extent_.longest = options_.max_seq_length;
  extent_.bytes = first_.back() * static_cast<int64_t>(sizeof(uint64_t));
  const std::string rest = std::to_string(size_) + (options_.next_sentence ? " pairs" : "");
  hasher.update(rest);
  fingerprint_ = hasher.hex();
}

std::pair<size_t, int64_t> ShardExamples::find(int64_t index) const {
  const auto behind = std::upper_bound(first_.begin(), first_.end(), index);
  const auto file = static_cast<size_t>(behind - first_.begin()) - 1;
  return {file, index - first_[file]};
}

PretrainingExample ShardExamples::example(const SampleKey& key) const {
  FT_CHECK(key.index >= 0 && key.index < size_, "sample lies outside the shards");
  const auto [file, record] = find(key.index);
  const TfRecordFile& shard = files_[file];
  return decode_example(shard.read(record), shard.place(record), options_);
}

}  // namespace finetune
