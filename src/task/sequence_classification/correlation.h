// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

namespace finetune {

// Returns Pearson's correlation of x and y, which have equal length; NaN for fewer than two values
// and if a side is constant, as in SciPy.
[[nodiscard]] double pearson(const std::vector<float>& x, const std::vector<float>& y);

// Returns Spearman's correlation: Pearson's of the ranks, where ties get their mean rank. NaN if a
// value is NaN.
[[nodiscard]] double spearman(const std::vector<float>& x, const std::vector<float>& y);

}  // namespace finetune
