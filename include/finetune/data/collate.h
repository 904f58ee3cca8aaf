// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>

#include "finetune/data/loader.h"
#include "finetune/data/masking.h"

namespace finetune {

struct PaddingOptions {
  int32_t pad_id = 0;
  bool pad_left = false;
  bool pad_to_max_length = false;  // false: to the longest sequence of the batch
  int64_t max_seq_length = 0;      // no rounding exceeds it; 0: unknown
  int64_t pad_to_multiple_of = 1;

  // Takes pad token and side from the tokenizer. Throws Error(kData) if it has no pad token.
  [[nodiscard]] static PaddingOptions from(const Tokenizer& tokenizer);
};

// Pads sequences to one length and copies their targets. Padding has the pad token, token type 0,
// attention 0 and no label; padding on the left shifts the positions of answers.
// Batch::first_position is 0.
class PaddingCollator final : public Collator {
 public:
  explicit PaddingCollator(PaddingOptions options);

  using Collator::collate;
  void collate(const Dataset& dataset, std::span<const SampleKey> samples,
               Batch& batch) const override;

 private:
  PaddingOptions options_;
};

struct MaskedLmOptions : PaddingOptions {
  MaskingOptions masking;

  // Takes the pad and mask tokens from the tokenizer. Throws Error(kData) if one is missing.
  [[nodiscard]] static MaskedLmOptions from(const Tokenizer& tokenizer);
};

// Pads like PaddingCollator and masks; samples that already have labels are not masked.
class MaskedLmCollator final : public Collator {
 public:
  explicit MaskedLmCollator(MaskedLmOptions options);

  using Collator::collate;
  void collate(const Dataset& dataset, std::span<const SampleKey> samples,
               Batch& batch) const override;

 private:
  MaskedLmOptions options_;
  Masking masking_;
};

// Pads on the right. The label of each token is the next token of its sample: a sample's first
// token is no target, and its last token has no label. Labels in the data are aligned with their
// own tokens, as in transformers, and are shifted likewise. A sample may have several sequences,
// and values.
class CausalLmCollator final : public Collator {
 public:
  // Requires: !options.pad_left.
  explicit CausalLmCollator(PaddingOptions options);

  using Collator::collate;
  void collate(const Dataset& dataset, std::span<const SampleKey> samples,
               Batch& batch) const override;

 private:
  PaddingOptions options_;
};

}  // namespace finetune
