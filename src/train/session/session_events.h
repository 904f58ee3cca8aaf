// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "train/session/training_run.h"

namespace finetune {

// Returns the `start` event of sessions.jsonl: the run, its step, machine, configuration and data.
// For rank 0.
[[nodiscard]] nlohmann::ordered_json start_event(const TrainingRun& run);

// Returns the number of samples and, of at most 256 evenly spaced samples, lengths in tokens and
// labels. `has_examples`: samples can be read.
[[nodiscard]] nlohmann::ordered_json data_statistics(const Dataset& data, bool has_examples = true);

}  // namespace finetune
