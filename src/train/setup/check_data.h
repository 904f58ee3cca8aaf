// SPDX-License-Identifier: MIT
#pragma once

#include "train/setup/assemble.h"

namespace finetune {

// Reports what the training samples are like where that is likely a mistake: a line with the share
// of unknown tokens (a warning from 20 %) and one with the number of samples that reach the length
// at which texts are cut. Reads at most 64 samples spread over the data, and the lengths of the
// others. Nothing is reported about streamed data and pretraining examples, which are made during
// the training. Throws Error(kData) if all tokens are unknown, or no sample has a target.
void check_training_samples(const LoadedConfig& config, const Parts& parts);

}  // namespace finetune
