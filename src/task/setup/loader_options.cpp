// SPDX-License-Identifier: MIT
#include "finetune/task/loader_options.h"

#include <algorithm>

namespace finetune {

SamplingStrategy sampling_strategy(const LoaderArgs& args) {
  if (args.batch_sampler == "no_duplicates") return SamplingStrategy::kNoDuplicates;
  if (args.train_sampling_strategy == "sequential") return SamplingStrategy::kSequential;
  if (args.train_sampling_strategy == "group_by_length") return SamplingStrategy::kGroupByLength;
  return SamplingStrategy::kRandom;
}

int64_t default_length_group(const LoaderArgs& args, int64_t samples,
                             int64_t effective_batch_size) {
  const SamplingStrategy strategy = sampling_strategy(args);
  if (strategy == SamplingStrategy::kNoDuplicates) return effective_batch_size;
  if (strategy != SamplingStrategy::kGroupByLength) return 0;
  return effective_batch_size * std::clamp<int64_t>(samples / (4 * effective_batch_size), 1, 50);
}

SetSampling set_sampling(const DataArgs& data, const LoaderArgs& args) {
  if (data.train_file_sets.empty()) return SetSampling::kNone;
  return args.multi_dataset_batch_sampler == "round_robin" ? SetSampling::kRoundRobin
                                                           : SetSampling::kProportional;
}

LoaderOptions loader_options(const DataArgs& data, const LoaderArgs& args,
                             const DurationArgs& duration, int64_t micro_batches,
                             int64_t length_group, int64_t packed_length) {
  return {.batch_size = duration.per_device_train_batch_size,
          .micro_batches = micro_batches,
          .sampling = sampling_strategy(args),
          .length_group = std::max<int64_t>(1, length_group),
          .sets = set_sampling(data, args),
          .packed_length = packed_length,
          .seed = static_cast<uint64_t>(duration.data_seed.value_or(duration.seed)),
          .drop_last = args.dataloader_drop_last,
          .drop_multiple = duration.per_device_train_batch_size,
          .workers = args.dataloader_num_workers,
          .prefetch = args.dataloader_prefetch_factor.value_or(2)};
}

}  // namespace finetune
