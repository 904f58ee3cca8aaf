// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace finetune {

// One page with style, script and data inside: it loads nothing, and shows `summary` where scripts
// do not run. `data`: what src/report/page/page.js draws, as `finetune report --format json` writes
// it.
[[nodiscard]] std::string html_page(const nlohmann::ordered_json& data, const std::string& title,
                                    const std::string& summary);

// A logged value by step. NaN is no value.
struct SeriesPoint {
  int64_t step = 0;
  double value = 0;
  double time = 0;  // Unix seconds; NaN: not known
};

// At most about `most` points of a curve: of equal runs of points the least and the greatest, where
// there are any non-finite ones one of them, and the first and last point of all.
[[nodiscard]] std::vector<SeriesPoint> decimated(const std::vector<SeriesPoint>& points,
                                                 size_t most);

}  // namespace finetune
