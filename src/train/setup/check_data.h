// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "finetune/data/batch.h"
#include "train/setup/assemble.h"

namespace finetune {

// Reports what the training samples are like where that is likely a mistake: a line with the share
// of unknown tokens (a warning from 20 %) and one with the number of samples that reach the length
// at which texts are cut. Reads at most 64 samples spread over the data, and the lengths of the
// others. Does nothing for streamed data and pretraining examples, which are made during training.
// Throws Error(kConfig) if all texts are empty, all tokens are unknown, or no sample has a target.
void check_training_samples(const LoadedConfig& config, const DataParts& parts);

// The same for the first update of a session, which is all that is known of streamed data and of
// pretraining examples. Does nothing for other data.
void check_first_update(const LoadedConfig& config, const DataParts& parts,
                        std::span<const Batch> update);

}  // namespace finetune
