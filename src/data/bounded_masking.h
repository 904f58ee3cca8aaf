// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/data/masking.h"
#include "finetune/data/pretraining_dataset.h"

namespace finetune {

// Masks an example as BERT's create_pretraining_data does: of n tokens, special ones included,
// max(1, round(n mlm_probability)) are chosen, at most `most`; of the chosen, 80 % become the mask
// token, 10 % a random token and 10 % stay. Special tokens are never chosen. With whole words, a
// word that would exceed the limit is skipped. A function of (seed, sample's key) and the ids. Part
// of the checkpoint format.
void mask_example(const MaskingOptions& options, const SampleKey& key, int64_t most,
                  PretrainingExample& example);

}  // namespace finetune
