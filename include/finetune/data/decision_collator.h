// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "finetune/data/collate.h"

namespace finetune {

// Pads on the right; Batch::labels has the questions of each row at its beginning, and
// Batch::targets is the number of those with an answer.
class DecisionCollator final : public Collator {
 public:
  // Requires: !options.pad_left.
  explicit DecisionCollator(PaddingOptions options) : padding_(options) {}

  using Collator::collate;
  void collate(const Dataset& dataset, std::span<const SampleKey> samples,
               Batch& batch) const override;

 private:
  PaddingCollator padding_;
};

}  // namespace finetune
