// SPDX-License-Identifier: MIT
#include "task/sequence_classification/roc_auc.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "finetune/base/error.h"

namespace finetune {

// Computed from the ranks of the positive samples (Mann and Whitney 1947); tied samples share their
// mean rank.
double roc_auc(const std::vector<double>& scores, const std::vector<uint8_t>& is_positive) {
  FT_CHECK(scores.size() == is_positive.size(), "a flag for each score");
  constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();
  if (std::ranges::any_of(scores, [](double score) { return std::isnan(score); })) {
    return kUndefined;
  }
  std::vector<uint32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, [&](uint32_t a, uint32_t b) { return scores[a] < scores[b]; });
  double ranks = 0.0;
  double positives = 0.0;
  for (size_t first = 0; first < order.size();) {
    size_t end = first;
    double tied = 0.0;  // positive samples among the equal scores
    for (; end < order.size() && scores[order[end]] == scores[order[first]]; ++end) {
      tied += is_positive[order[end]];
    }
    ranks += tied * (static_cast<double>(first + end + 1) / 2);
    positives += tied;
    first = end;
  }
  const double negatives = static_cast<double>(order.size()) - positives;
  if (positives == 0 || negatives == 0) return kUndefined;
  return (ranks - positives * (positives + 1) / 2) / (positives * negatives);
}

double RocAucColumns::macro(int64_t columns) const {
  const auto count = static_cast<size_t>(columns);
  double sum = 0.0;
  for (size_t column = 0; column < count; ++column) {
    std::vector<double> scores;
    std::vector<uint8_t> positive;
    for (size_t i = column; i < scores_.size(); i += count) {
      scores.push_back(scores_[i]);
      positive.push_back(positive_[i]);
    }
    sum += roc_auc(scores, positive);
  }
  return count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(columns);
}

}  // namespace finetune
