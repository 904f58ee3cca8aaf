// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "train/training_run.h"

namespace finetune {

// The `start` event of sessions.jsonl: which run, where it is, on which machine, with which
// configuration and data. Rank 0.
[[nodiscard]] nlohmann::ordered_json start_event(const TrainingRun& run);

// The number of samples, and of at most 256 of them, evenly spaced: lengths in tokens and labels.
// `has_examples`: they can be looked at.
[[nodiscard]] nlohmann::ordered_json data_statistics(const Dataset& data, bool has_examples = true);

}  // namespace finetune
