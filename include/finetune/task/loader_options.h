// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/config/data_args.h"
#include "finetune/config/optimizer_args.h"
#include "finetune/data/loader.h"

namespace finetune {

[[nodiscard]] SamplingStrategy sampling_strategy(const LoaderArgs& args);

// How entries of train_file follow each other where each update is of one of them.
[[nodiscard]] SetSampling set_sampling(const DataArgs& data, const LoaderArgs& args);

// Returns the number of samples that group_by_length sorts together, like transformers'
// LengthGroupedSampler: the samples of fifty updates, but at most a quarter of the data; or those
// among which no_duplicates admits none: an update's. 0: the samples are in no groups.
[[nodiscard]] int64_t default_length_group(const LoaderArgs& args, int64_t samples,
                                           int64_t effective_batch_size);

// Returns the loader's options from the keys. `micro_batches`: per update, in all processes. The
// caller sets batch size, part and parts.
[[nodiscard]] LoaderOptions loader_options(const DataArgs& data, const LoaderArgs& args,
                                           const DurationArgs& duration, int64_t micro_batches,
                                           int64_t length_group, int64_t packed_length);

}  // namespace finetune
