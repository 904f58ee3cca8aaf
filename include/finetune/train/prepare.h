// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "finetune/config/load.h"

namespace finetune {

// `finetune prepare`: tokenises what a training of this configuration reads, into cache_dir.
// Returns "cache_dir", "train_samples" and, where they are read, "eval_samples" and
// "predict_samples". Of task pretraining it makes the examples from the documents of train_file and
// writes them as TFRecord shards to prepare_output_dir; returns "files" (a glob for train_file),
// "examples", "shards_written" and "shards_kept". A later call continues an interrupted one. Throws
// Error, and Interrupted with all complete parts saved.
[[nodiscard]] nlohmann::ordered_json run_prepare(const LoadedConfig& config);

}  // namespace finetune
