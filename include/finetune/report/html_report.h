// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace finetune {

// Returns a self-contained page with style, script and data, which loads nothing else and shows
// `summary` if scripts are disabled. `data`: the output of `finetune report --format json`, which
// src/report/page/page.js draws.
[[nodiscard]] std::string html_page(const nlohmann::ordered_json& data, const std::string& title,
                                    const std::string& summary);

}  // namespace finetune
