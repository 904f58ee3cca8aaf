// SPDX-License-Identifier: MIT
#include <algorithm>
#include <span>
#include <vector>

#include "data/loading/padding.h"
#include "finetune/base/error.h"
#include "finetune/data/pretraining_dataset.h"

namespace finetune {
namespace {

// The examples made for one batch.
class MadeExamples final : public Dataset {
 public:
  // Uses `collator_memory`, which may contain earlier examples.
  MadeExamples(const PretrainingDataset& dataset, std::span<const SampleKey> samples,
               std::vector<PretrainingExample>& collator_memory) {
    if (collator_memory.size() < samples.size()) collator_memory.resize(samples.size());
    for (size_t i = 0; i < samples.size(); ++i) {
      dataset.make(samples[i].index, samples[i], collator_memory[i]);
    }
    examples_ = std::span(collator_memory).first(samples.size());
  }
  using Dataset::get;
  [[nodiscard]] int64_t size() const override { return static_cast<int64_t>(examples_.size()); }
  [[nodiscard]] Example get(int64_t index, int64_t) const override {
    const PretrainingExample& made = (*this)[index];
    return {.input_ids = made.input_ids,
            .labels = {},
            .attention_mask = {},
            .token_type_ids = made.segment_ids,
            .label = {},
            .values = {},
            .answer = {}};
  }
  [[nodiscard]] std::string fingerprint() const override { return {}; }

  const PretrainingExample& operator[](int64_t index) const {
    return examples_[static_cast<size_t>(index)];
  }

 private:
  std::span<const PretrainingExample> examples_;
};

// Reused memory of the thread, which collates one batch after the other.
struct CollatorMemory {
  std::vector<PretrainingExample> examples;
  std::vector<SampleKey> positions;
};
thread_local CollatorMemory collator_memory;

}  // namespace

Example PretrainingDataset::get(int64_t, int64_t) const {
  FT_CHECK(false, "an example of pretraining is made for an epoch");
}

void PretrainingCollator::collate(const Dataset& dataset, std::span<const SampleKey> samples,
                                  Batch& batch) const {
  const auto* source = dynamic_cast<const PretrainingDataset*>(&dataset);
  FT_CHECK(source != nullptr, "examples of pretraining come from their own kind of data");
  const MadeExamples made(*source, samples, collator_memory.examples);
  collator_memory.positions.clear();
  for (int64_t i = 0; i < made.size(); ++i)
    collator_memory.positions.push_back({.index = i, .epoch = 0});
  pad(made, collator_memory.positions, options_, batch);
  batch.labels.assign(batch.input_ids.size(), kIgnoredLabel);
  bool asks_for_next = false;
  for (int64_t row = 0; row < batch.rows; ++row) {
    batch.samples[static_cast<size_t>(row)] = samples[static_cast<size_t>(row)].index;
    const PretrainingExample& example = made[row];
    const RowCells cells = cells_of(batch, row, example.input_ids.size(), options_.pad_left);
    for (size_t i = 0; i < example.masked_lm_positions.size(); ++i) {
      batch.labels[cells.begin + static_cast<size_t>(example.masked_lm_positions[i])] =
          example.masked_lm_ids[i];
    }
    batch.targets += static_cast<int64_t>(example.masked_lm_positions.size());
    batch.classes.push_back(example.next_sentence_label);
    asks_for_next = asks_for_next || example.next_sentence_label != kIgnoredLabel;
  }
  if (asks_for_next) {
    batch.targets += batch.rows - std::ranges::count(batch.classes, kIgnoredLabel);
  } else {
    batch.classes.clear();
  }
}

}  // namespace finetune
