// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "finetune/config/load.h"
#include "finetune/task/hard_negatives.h"

namespace finetune {

// More output of `finetune prepare`.
struct PrepareOutput {
  int64_t show = 0;                      // print this many samples, with what is learned marked
  std::optional<std::string> rows = {};  // write training samples to this file as JSON lines
  // Write the pairs of train_file with hard negatives: to `rows`, else to hard_negatives.jsonl in
  // output_dir.
  std::optional<HardNegativeOptions> hard_negatives = {};
};

// Implements `finetune prepare`: tokenises the data of a training with this configuration into
// cache_dir. Returns "cache_dir", "train_samples" and, if they are read, "eval_samples" and
// "predict_samples". For task pretraining it makes the examples from the documents of train_file
// and writes them as TFRecord shards to prepare_output_dir; returns "files" (a glob for
// train_file), "examples", "shards_written" and "shards_kept". A later call continues an
// interrupted one. Throws Error, and Interrupted with all complete parts saved.
[[nodiscard]] nlohmann::ordered_json run_prepare(const LoadedConfig& config,
                                                 const PrepareOutput& output = {});

}  // namespace finetune
