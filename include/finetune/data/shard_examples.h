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
  int32_t pad_id = 0;              // of the model; at the end of input_ids it is no token
  int64_t vocabulary_limit = 0;    // exclusive upper limit of ids; 0: no limit
  int64_t max_seq_length = 512;    // tokens of an example at most
  int64_t token_types = 2;         // exclusive upper limit of segment_ids
  bool next_sentence = true;       // false: labels of the next sentence are passed over
  std::optional<int64_t> max_samples = {};
  std::function<void(double)> progress = {};  // fraction of the files, on the caller's thread
};

// Examples that were masked beforehand, in TFRecord shards with BERT's features: input_ids,
// segment_ids, masked_lm_positions, masked_lm_ids, masked_lm_weights (1, or 0 for an unused
// position) and next_sentence_labels. Samples are numbered across all shards, so that any order
// over them reaches every shard; only the offsets of records are in memory.
//
// A record is checked when it is requested: Error(kData) names file, record and feature.
class ShardExamples final : public PretrainingDataset {
 public:
  // Throws as expand_files() and TfRecordFile do.
  ShardExamples(const std::vector<std::string>& files, const ShardOptions& options);

  [[nodiscard]] int64_t size() const override { return size_; }
  [[nodiscard]] std::optional<DatasetExtent> extent() const override { return extent_; }
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }
  // Of every epoch the same.
  void make(int64_t index, const SampleKey& mask, PretrainingExample& example) const override;

  [[nodiscard]] int64_t shards() const { return static_cast<int64_t>(files_.size()); }

 private:
  [[nodiscard]] std::pair<size_t, int64_t> find(int64_t index) const;

  ShardOptions options_;
  std::vector<TfRecordFile> files_;
  std::vector<int64_t> first_;  // number of each file's first sample, and of the end
  int64_t size_ = 0;
  DatasetExtent extent_;
  std::string fingerprint_;
};

// A record of such a shard: each list is filled up to a fixed length with the pad token, zeros, or
// positions of weight 0. Requires: an example that is not longer.
struct ShardLayout {
  int64_t max_seq_length = 0;
  int64_t max_predictions = 0;
  int32_t pad_id = 0;
};
[[nodiscard]] std::string encode_example(const PretrainingExample& example,
                                         const ShardLayout& layout);
// Reads a record. Overwrites the example, reusing its memory. Throws Error(kData), whose text
// begins with `place`.
void decode_example(std::string_view data, const TfPlace& place, const ShardOptions& options,
                    PretrainingExample& example);
[[nodiscard]] PretrainingExample decode_example(std::string_view data, const std::string& place,
                                                const ShardOptions& options);

}  // namespace finetune
