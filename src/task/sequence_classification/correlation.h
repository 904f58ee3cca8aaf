// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

namespace finetune {

// Pearson's correlation of equally many numbers; NaN for fewer than two and where either side is
// constant, as SciPy says it.
[[nodiscard]] double pearson(const std::vector<float>& x, const std::vector<float>& y);

// Spearman's: Pearson's of the ranks, ties having their mean rank. NaN where a number is NaN.
[[nodiscard]] double spearman(const std::vector<float>& x, const std::vector<float>& y);

}  // namespace finetune
