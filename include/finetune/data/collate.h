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
  bool pad_to_max_length = false;  // else to the longest sequence of the batch
  int64_t max_seq_length = 0;      // used by pad_to_max_length alone
  int64_t pad_to_multiple_of = 1;

  // With the tokenizer's pad token and side. Throws Error(kData) where it has no pad token.
  [[nodiscard]] static PaddingOptions from(const Tokenizer& tokenizer);
};

// Pads sequences to one length and copies their targets. Padding has the pad token, token type 0,
// attention 0 and no label; the positions of an answer move with padding on the left.
// Batch::first_place stays 0.
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

  // With the tokenizer's pad and mask tokens. Throws Error(kData) where one is missing.
  [[nodiscard]] static MaskedLmOptions from(const Tokenizer& tokenizer);
};

// Pads as PaddingCollator does and masks; samples that bring labels are taken as they are.
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

// Pads after the sequences and gives each token the next one of its sample as its label: the first
// token is no target, and no token learns what the next sample begins with. Samples that bring
// labels bring them as transformers does, each for its own token, and they are shifted likewise.
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
