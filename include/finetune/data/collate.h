// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>

#include "finetune/data/loader.h"
#include "finetune/data/masking.h"

namespace finetune {

struct MaskedLmOptions {
  MaskingOptions masking;
  int32_t pad_id = 0;
  bool pad_to_max_length = false;  // else to the longest sample of the batch
  int64_t max_seq_length = 0;      // used by pad_to_max_length alone
  int64_t pad_to_multiple_of = 1;

  // With the tokenizer's pad and mask tokens. Throws Error(kData) where one is missing.
  [[nodiscard]] static MaskedLmOptions from(const Tokenizer& tokenizer);
};

// Pads samples on the right and masks them; samples that bring labels are taken as they are.
// Padding has the pad token, attention 0 and no label. Batch::first_place is left at 0.
class MaskedLmCollator final : public Collator {
 public:
  explicit MaskedLmCollator(MaskedLmOptions options);

  [[nodiscard]] Batch collate(const Dataset& dataset,
                              std::span<const SampleKey> samples) const override;

 private:
  [[nodiscard]] int64_t padded_length(int64_t longest) const;
  void fill_row(Batch& batch, int64_t row, const Example& example, const SampleKey& key) const;

  MaskedLmOptions options_;
  Masking masking_;
};

}  // namespace finetune
