// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>

#include "finetune/data/loader.h"
#include "finetune/data/rows.h"
#include "finetune/data/token_dataset.h"

namespace finetune {

class Tokenizer;

// Samples of a query, its documents, and documents of other samples, which are drawn again in
// each epoch: a function of seed, epoch and sample, whatever is in a batch with it. One that is
// equal to a document of the sample itself is passed over; where others are hard to find, its label
// is NaN.
//
// get() returns the document alone, of epoch 0 if it is drawn; length() the tokens of its pair with
// the query, of a drawn one at most. The collator below makes the pairs.
class DrawnNegatives final : public SampleView {
 public:
  // `texts`: the query first, then the documents, without special tokens (TextListOptions::bare).
  // `count`: documents of other samples; fewer if there are not as many.
  DrawnNegatives(std::shared_ptr<const SequenceDataset> texts, const Tokenizer& tokenizer,
                 const SampleOptions& options, int64_t count, uint64_t seed);
  ~DrawnNegatives() override;

  using Dataset::get;
  using Dataset::length;
  [[nodiscard]] int64_t choices() const override;
  [[nodiscard]] Example get(int64_t index, int64_t choice) const override;
  [[nodiscard]] int64_t length(int64_t index, int64_t choice) const override;
  [[nodiscard]] std::optional<DatasetExtent> extent() const override { return std::nullopt; }
  [[nodiscard]] int64_t tokens() const override;
  [[nodiscard]] int64_t longest() const override;
  // Appends the pairs of a sample, with labels: 1 of its first document, else 0.
  void add_pairs(const SampleKey& key, TokenContent& content) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Pads the pairs of DrawnNegatives, and the sequences of any other dataset as they are.
[[nodiscard]] std::shared_ptr<const Collator> make_drawn_negatives_collator(
    std::shared_ptr<const Collator> padding);

}  // namespace finetune
