// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace finetune {

// Returns a self-contained page with style, script and data, which loads nothing else and shows
// `summary` if scripts are disabled. `data`: the output of `finetune report --format json`, which
// src/report/page/page.js draws.
[[nodiscard]] std::string html_page(const nlohmann::ordered_json& data, const std::string& title,
                                    const std::string& summary);

// A logged value by step. NaN means no value.
struct SeriesPoint {
  int64_t step = 0;
  double value = 0;
  double time = 0;  // Unix seconds; NaN: unknown
};

// Reduces a curve to about `most` points: keeps the minimum and the maximum of each of equal ranges
// of points, one non-finite point of each range that has any, and the first and last point.
[[nodiscard]] std::vector<SeriesPoint> decimated(const std::vector<SeriesPoint>& points,
                                                 size_t most);

}  // namespace finetune
