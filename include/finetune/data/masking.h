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
  std::vector<uint8_t> special;  // by id, 1: never masked; may be shorter
  // By id, 1: the token continues a word; may be shorter. If not empty, whole words are masked.
  std::vector<uint8_t> continues_word;
  uint64_t seed = 42;

  // Takes mask token, vocabulary and special tokens from the tokenizer. Throws Error(kData) if it
  // has no mask token.
  [[nodiscard]] static MaskingOptions from(const Tokenizer& tokenizer, bool whole_words = false);
};

// Returns the key of a sample's random numbers: a function of (seed, epoch, sample), in evaluation
// of (seed, sample).
[[nodiscard]] uint64_t masking_key(uint64_t seed, const SampleKey& sample);

// Dynamic masking as in BERT (Devlin et al. 2019, section 3.1) and transformers'
// DataCollatorForLanguageModeling: each token that is not special is selected with probability
// mlm_probability. Of the selected tokens 80 % become the mask token, 10 % a random token and 10 %
// stay unchanged; only selected tokens have labels.
//
// Whole words as in its whole_word_mask: a word (a token and the following tokens that continue it)
// is selected with probability mlm_probability; all its tokens have labels and become the mask
// token.
//
// The result is a function of (seed, epoch, sample) and the sample's ids, in evaluation of (seed,
// sample); it does not depend on batch, padding, worker or process. Part of the checkpoint format.
class Masking {
 public:
  explicit Masking(MaskingOptions options);

  // Masks `input_ids` in place and fills `labels`. Requires: equal sizes, no negative ids. Returns
  // the number of labels other than kIgnoredLabel.
  int64_t apply(const SampleKey& sample, std::span<int64_t> input_ids,
                std::span<int64_t> labels) const;

 private:
  int64_t mask_words(random::Sequence& sequence, std::span<int64_t> input_ids,
                     std::span<int64_t> labels) const;

  MaskingOptions options_;
};

}  // namespace finetune
