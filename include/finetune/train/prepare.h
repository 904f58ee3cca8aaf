// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "finetune/config/load.h"

namespace finetune {

// `finetune prepare`: makes the examples of task pretraining from the documents of train_file and
// writes them as TFRecord shards to prepare_output_dir. A call that was stopped goes on where it
// was. Returns "files" (a glob for train_file), "examples", "shards_written" and "shards_kept".
// Throws Error, and Interrupted with all that is whole saved.
[[nodiscard]] nlohmann::ordered_json run_prepare(const LoadedConfig& config);

}  // namespace finetune
