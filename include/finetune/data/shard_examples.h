// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "finetune/data/pretraining_dataset.h"
#include "finetune/data/tf_example.h"
#include "finetune/data/tf_record.h"

namespace finetune {

struct ShardOptions {
  std::string key = "train_file";  // the configuration key that errors name
  int32_t pad_id = 0;              // the model's; trailing pad ids in input_ids are not tokens
  int64_t vocabulary_limit = 0;    // exclusive upper limit of ids; 0: no limit
  int64_t max_seq_length = 512;    // tokens of an example at most
  int64_t token_types = 2;         // exclusive upper limit of segment_ids
  bool next_sentence = true;       // false: next-sentence labels are ignored
  std::optional<int64_t> max_samples = {};
  std::function<void(double)> progress = {};  // fraction of the files, on the caller's thread
};

// Examples masked beforehand, in TFRecord shards with BERT's features: input_ids, segment_ids,
// masked_lm_positions, masked_lm_ids, masked_lm_weights (1, or 0 for an unused position) and
// next_sentence_labels. Samples are numbered across all shards, so that the shuffle covers all
// shards; only the offsets of records are in memory.
//
// A record is checked when it is read: Error(kData) names file, record and feature.
class ShardExamples final : public PretrainingDataset {
 public:
  // Throws as expand_files() and TfRecordFile do.
  ShardExamples(const std::vector<std::string>& files, const ShardOptions& options);

  [[nodiscard]] int64_t size() const override { return size_; }
  [[nodiscard]] std::optional<DatasetExtent> extent() const override { return extent_; }
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }
  // Returns the same example in every epoch.
  void make(int64_t index, const SampleKey& mask, PretrainingExample& example) const override;

  [[nodiscard]] int64_t shards() const { return static_cast<int64_t>(files_.size()); }

 private:
  [[nodiscard]] std::pair<size_t, int64_t> find(int64_t index) const;

  ShardOptions options_;
  std::vector<TfRecordFile> files_;
  std::vector<int64_t> first_;  // index of each file's first sample, and the total
  int64_t size_ = 0;
  DatasetExtent extent_;
  std::string fingerprint_;
};

// The layout of a record in such a shard: each list is padded to a fixed length with the pad token,
// zeros, or positions of weight 0. Requires: the example is not longer.
struct ShardLayout {
  int64_t max_seq_length = 0;
  int64_t max_predictions = 0;
  int32_t pad_id = 0;
};
[[nodiscard]] std::string encode_example(const PretrainingExample& example,
                                         const ShardLayout& layout);
// Reads a record into the example, reusing its memory. Throws Error(kData) with `position` as
// prefix.
void decode_example(std::string_view data, const TfPosition& position, const ShardOptions& options,
                    PretrainingExample& example);
[[nodiscard]] PretrainingExample decode_example(std::string_view data, const std::string& position,
                                                const ShardOptions& options);

}  // namespace finetune
