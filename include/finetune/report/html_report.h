// SPDX-License-Identifier: MIT
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace finetune {

// One page with style, script and data inside: it loads nothing, and shows `summary` where scripts
// do not run. `data`: what src/report/page/page.js draws, as `finetune report --format json` writes
// it.
[[nodiscard]] std::string html_page(const nlohmann::ordered_json& data, const std::string& title,
                                    const std::string& summary);

}  // namespace finetune
