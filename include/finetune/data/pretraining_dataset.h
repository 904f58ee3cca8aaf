// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "finetune/data/batch.h"
#include "finetune/data/collate.h"
#include "finetune/data/dataset.h"

namespace finetune {

// One masked sample of BERT's pretraining. Names and meanings are those of BERT's features.
struct PretrainingExample {
  static constexpr int64_t kIsNext = 0;
  static constexpr int64_t kIsRandom = 1;

  std::vector<int32_t> input_ids;
  std::vector<uint8_t> segment_ids;             // 0 or, in the second segment, 1 for each id
  std::vector<int32_t> masked_lm_positions;     // ascending
  std::vector<int32_t> masked_lm_ids;           // the original ids
  int64_t next_sentence_label = kIgnoredLabel;  // kIgnoredLabel if there is one segment

  friend bool operator==(const PretrainingExample&, const PretrainingExample&) = default;

  // Clears the content but keeps the allocations.
  void clear() {
    for (auto* list : {&input_ids, &masked_lm_positions, &masked_lm_ids}) list->clear();
    segment_ids.clear();
    next_sentence_label = kIgnoredLabel;
  }
};

// Samples made on demand, as a function of their key.
class PretrainingDataset : public Dataset {
 public:
  // Overwrites `example` with sample `index`, masked by the random numbers of `mask`, reusing its
  // buffers. Thread-safe. Requires: 0 <= index < size().
  virtual void make(int64_t index, const SampleKey& mask, PretrainingExample& example) const = 0;
  [[nodiscard]] PretrainingExample example(int64_t index, const SampleKey& mask) const {
    PretrainingExample example;
    make(index, mask, example);
    return example;
  }
  [[nodiscard]] PretrainingExample example(const SampleKey& key) const {
    return example(key.index, key);
  }
  // Not supported: samples are made on demand, so there is no memory that spans could refer to.
  using Dataset::get;
  [[nodiscard]] Example get(int64_t index, int64_t choice) const final;
};

// Pads like PaddingCollator; labels are the masked tokens, classes are the next-sentence labels.
// Requires: a PretrainingDataset.
class PretrainingCollator final : public Collator {
 public:
  explicit PretrainingCollator(PaddingOptions options) : options_(options) {}

  using Collator::collate;
  void collate(const Dataset& dataset, std::span<const SampleKey> samples,
               Batch& batch) const override;

 private:
  PaddingOptions options_;
};

}  // namespace finetune
