// SPDX-License-Identifier: MIT
#pragma once

#include "finetune/config/training_args.h"
#include "finetune/data/loader.h"

namespace finetune {

[[nodiscard]] SamplingStrategy sampling_strategy(const TrainingArgs& args);

// Samples that group_by_length sorts together, as transformers' LengthGroupedSampler: fifty
// updates' samples, fewer where the data has not four times as many.
[[nodiscard]] int64_t default_length_group(int64_t samples, int64_t effective_batch_size);

// What the keys say about a training's loader. `micro_batches`: of an update, in all processes;
// batch size, part and parts are the caller's.
[[nodiscard]] LoaderOptions loader_options(const TrainingArgs& args, int64_t micro_batches,
                                           int64_t length_group, int64_t packed_length);

}  // namespace finetune
