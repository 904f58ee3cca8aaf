// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <vector>

#include "finetune/data/batch.h"
#include "finetune/data/collate.h"
#include "finetune/data/dataset.h"

namespace finetune {

// One sample of BERT's pretraining, masked. Names and meaning are those of the features that BERT's
// authors write.
struct PretrainingExample {
  static constexpr int64_t kIsNext = 0;
  static constexpr int64_t kIsRandom = 1;

  std::vector<int32_t> input_ids;
  std::vector<uint8_t> segment_ids;             // one for each id: 0, and 1 of the second segment
  std::vector<int32_t> masked_lm_positions;     // rising
  std::vector<int32_t> masked_lm_ids;           // what stood there
  int64_t next_sentence_label = kIgnoredLabel;  // nothing is asked where there is one segment

  friend bool operator==(const PretrainingExample&, const PretrainingExample&) = default;

  // Clears the content and keeps the memory.
  void clear() {
    for (auto* list : {&input_ids, &masked_lm_positions, &masked_lm_ids}) list->clear();
    segment_ids.clear();
    next_sentence_label = kIgnoredLabel;
  }
};

// Samples that are made when they are asked for, as a function of their key.
class PretrainingDataset : public Dataset {
 public:
  // Overwrites `example` with sample `index`, masked by the numbers of `mask`, reusing its buffers.
  // Safe to call from several threads. Requires: 0 <= index < size().
  virtual void make(int64_t index, const SampleKey& mask, PretrainingExample& example) const = 0;
  [[nodiscard]] PretrainingExample example(int64_t index, const SampleKey& mask) const {
    PretrainingExample example;
    make(index, mask, example);
    return example;
  }
  [[nodiscard]] PretrainingExample example(const SampleKey& key) const {
    return example(key.index, key);
  }
  // An example as it is before any epoch: its spans would have no home.
  using Dataset::get;
  [[nodiscard]] Example get(int64_t index, int64_t choice) const final;
};

// Pads as PaddingCollator does; labels are the masked tokens, classes the next sentences. Requires:
// a PretrainingDataset.
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
