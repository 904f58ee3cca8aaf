// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/run_folder.h"

namespace finetune::cli {

// Everything that a report shows of one run (src/report/page/page.js): status, curves decimated to
// about `points` points each, sessions, configuration with its changes, cost and data.
[[nodiscard]] nlohmann::ordered_json run_report(const RunFolder& run, size_t points);

// Keys with different values, and under "values" one for each run (null: not set).
[[nodiscard]] nlohmann::ordered_json differing_keys(const nlohmann::ordered_json& runs);

// Every line of the run's log: metrics.jsonl, or where that is missing log_history. Returns the
// number of lines that are unusable.
int64_t for_each_logged_line(const RunFolder& run,
                             const std::function<void(const nlohmann::ordered_json&)>& take);

// The report as Markdown; of the same data.
[[nodiscard]] std::string markdown_report(const nlohmann::ordered_json& report);
// All logged values of the runs, a row for each line of their logs.
[[nodiscard]] std::string csv_report(const std::vector<RunFolder>& runs);

}  // namespace finetune::cli
