// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/runs/run_folder.h"

namespace finetune::cli {

inline constexpr int kExitRunning = 6;  // of `finetune status`

// Returns the output of `finetune status --json`. "state" is one of running, finished, stopped,
// failed, killed, no_valid_checkpoint; unknown members are missing.
[[nodiscard]] nlohmann::ordered_json status_json(const RunFolder& run);
// Returns the same as text.
[[nodiscard]] std::string status_text(const nlohmann::ordered_json& status);
[[nodiscard]] int status_code(const nlohmann::ordered_json& status);

// "2026-11-22 23:10:05" in local time.

}  // namespace finetune::cli
