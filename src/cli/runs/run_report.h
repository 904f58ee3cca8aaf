// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/runs/run_folder.h"

namespace finetune::cli {

// Returns all data in a report on one run (src/report/page/page.js): status, curves reduced to
// about `points` points each, sessions, configuration with its changes, cost and data.
[[nodiscard]] nlohmann::ordered_json run_report(const RunFolder& run, size_t points);

// Returns the keys with different values; "values" has one value for each run (null: unset).
[[nodiscard]] nlohmann::ordered_json differing_keys(const nlohmann::ordered_json& runs);

// Calls `take` for every line of the run's log: metrics.jsonl or, if that is missing, log_history.
// Returns the number of unusable lines.
int64_t for_each_logged_line(const RunFolder& run,
                             const std::function<void(const nlohmann::ordered_json&)>& take);

// Returns the report as Markdown, from the same data.
[[nodiscard]] std::string markdown_report(const nlohmann::ordered_json& report);
// Returns all logged values of the runs as CSV, a row for each line of their logs.
[[nodiscard]] std::string csv_report(const std::vector<RunFolder>& runs);

}  // namespace finetune::cli
