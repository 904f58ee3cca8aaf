// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>

#include "finetune/runs/run_folder.h"

// What `status` and `report` say of a run, as JSON; every view is made from it.
namespace finetune {

// The output of `finetune status --json`. "state" is one of running, finished, stopped, failed,
// killed, no_valid_checkpoint; unknown members are missing.
[[nodiscard]] nlohmann::ordered_json status_json(const RunFolder& run);

// All data in a report on one run (src/report/page/page.js): status, curves reduced to about
// `points` points each, sessions, configuration with its changes, cost and data.
[[nodiscard]] nlohmann::ordered_json run_report(const RunFolder& run, size_t points);

// The keys with different values; "values" has one value for each run (null: unset).
[[nodiscard]] nlohmann::ordered_json differing_keys(const nlohmann::ordered_json& runs);

// Calls `take` for every line of the run's log: metrics.jsonl or, if that is missing, log_history.
// Returns the number of unusable lines.
int64_t for_each_logged_line(const RunFolder& run,
                             const std::function<void(const nlohmann::ordered_json&)>& take);

}  // namespace finetune
