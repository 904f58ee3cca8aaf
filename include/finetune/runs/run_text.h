// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "finetune/runs/run_folder.h"

// A run's facts (run_facts.h) as text; the HTML page draws the same JSON (report/html_report.h).
namespace finetune {

// Of status_json().
[[nodiscard]] std::string status_text(const nlohmann::ordered_json& status);
// Of {"runs": [run_report()...], "differences": differing_keys()}.
[[nodiscard]] std::string markdown_report(const nlohmann::ordered_json& report);
// All logged values of the runs, a row for each line of their logs.
[[nodiscard]] std::string csv_report(const std::vector<RunFolder>& runs);

}  // namespace finetune
