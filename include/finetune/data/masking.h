// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "finetune/data/loader.h"

namespace finetune {

class Tokenizer;
namespace random {
class Sequence;
}

struct MaskingOptions {
  double mlm_probability = 0.15;
  int32_t mask_id = -1;
  int64_t vocabulary = 0;        // random tokens are drawn from [0, vocabulary)
  std::vector<uint8_t> special;  // by id, 1 where a token is never chosen; shorter is fine
  // By token id, 1 if the token continues a word; may be shorter. Not empty: whole words are
  // masked.
  std::vector<uint8_t> continues_word;
  uint64_t seed = 42;

  // Mask token, vocabulary and special tokens as the tokenizer names them. Throws Error(kData)
  // where it has no mask token.
  [[nodiscard]] static MaskingOptions from(const Tokenizer& tokenizer, bool whole_words = false);
};

// The key of a sample's random numbers: of (seed, epoch, sample), in evaluation of (seed, sample).
[[nodiscard]] uint64_t masking_key(uint64_t seed, const SampleKey& sample);

// Dynamic masking as in BERT (Devlin et al. 2019, section 3.1) and transformers'
// DataCollatorForLanguageModeling: each token that is not special is chosen with mlm_probability;
// of the chosen, 80 % become the mask token, 10 % a random token and 10 % stay; only the chosen
// have labels.
//
// Whole words as its whole_word_mask: a word (a token and the following tokens that continue it) is
// chosen with mlm_probability; all of its tokens have labels and become the mask token.
//
// A function of (seed, epoch, sample) and the sample's ids, never of the batch, its padding, a
// worker or a process; in evaluation of (seed, sample). Part of the checkpoint format.
class Masking {
 public:
  explicit Masking(MaskingOptions options);

  // Masks `input_ids` in place and fills `labels`. Requires: the same size, ids that are not
  // negative. Returns the number of labels other than kIgnoredLabel.
  int64_t apply(const SampleKey& sample, std::span<int64_t> input_ids,
                std::span<int64_t> labels) const;

 private:
  int64_t mask_words(random::Sequence& sequence, std::span<int64_t> input_ids,
                     std::span<int64_t> labels) const;

  MaskingOptions options_;
};

}  // namespace finetune
