// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/data/masking.h"
#include "finetune/data/pretraining_dataset.h"

namespace finetune {

// Masks an example like BERT's create_pretraining_data: of n tokens, including special ones, max(1,
// round(n mlm_probability)) are selected, at most `most`. Of the selected tokens 80 % become the
// mask token, 10 % a random token and 10 % stay unchanged. Special tokens are never selected. With
// whole words, a word that would exceed the limit is skipped. A function of (seed, sample's key)
// and the ids. Part of the checkpoint format.
void mask_example(const MaskingOptions& options, const SampleKey& key, int64_t most,
                  PretrainingExample& example);

}  // namespace finetune
