// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "finetune/config/training_args.h"
#include "finetune/data/token_cache.h"

namespace finetune {

// Returns where hashes of files are cached between sessions.
[[nodiscard]] TokenCacheOptions hash_cache(const TrainingArgs& args, const ShowStep& show);

// Returns the weight files of a model folder. Throws Error(kData) for a folder without any.
[[nodiscard]] std::vector<std::string> weight_paths(const std::string& folder);
// Returns a hash of names, types, shapes and values of all tensors in the order of their names:
// equal for all formats and divisions into files. Throws Error(kData) and Interrupted.
[[nodiscard]] std::string hash_of_weights(const std::string& folder,
                                          const TokenCacheOptions& cache);

}  // namespace finetune
