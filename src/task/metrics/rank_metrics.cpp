// SPDX-License-Identifier: MIT
#include "task/metrics/rank_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "finetune/base/error.h"

namespace finetune {
namespace {

constexpr double kUndefinedCorrelation = std::numeric_limits<double>::quiet_NaN();

// Compares values, because rounding would give a constant side a tiny variance.
template <class T>
bool is_constant(const std::vector<T>& values) {
  return std::all_of(values.begin(), values.end(),
                     [&](T value) { return value == values.front(); });
}

template <class T>
double correlate(const std::vector<T>& x, const std::vector<T>& y) {
  if (x.size() < 2 || is_constant(x) || is_constant(y)) return kUndefinedCorrelation;
  const auto count = static_cast<double>(x.size());
  const double mean_x = std::accumulate(x.begin(), x.end(), 0.0) / count;
  const double mean_y = std::accumulate(y.begin(), y.end(), 0.0) / count;
  double xx = 0.0;
  double yy = 0.0;
  double xy = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double a = static_cast<double>(x[i]) - mean_x;
    const double b = static_cast<double>(y[i]) - mean_y;
    xx += a * a;
    yy += b * b;
    xy += a * b;
  }
  const double result = xy / (std::sqrt(xx) * std::sqrt(yy));
  return std::isnan(result) ? kUndefinedCorrelation : std::clamp(result, -1.0, 1.0);
}

std::vector<double> ranks(const std::vector<float>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> result(values.size());
  for (size_t first = 0; first < order.size();) {
    size_t last = first;
    while (last < order.size() && values[order[last]] == values[order[first]]) ++last;
    const double rank = static_cast<double>(first + 1 + last) / 2.0;
    for (; first < last; ++first) result[order[first]] = rank;
  }
  return result;
}

}  // namespace

double pearson(const std::vector<float>& x, const std::vector<float>& y) { return correlate(x, y); }

double spearman(const std::vector<float>& x, const std::vector<float>& y) {
  const auto is_nan = [](float value) { return std::isnan(value); };
  if (std::any_of(x.begin(), x.end(), is_nan) || std::any_of(y.begin(), y.end(), is_nan)) {
    return kUndefinedCorrelation;
  }
  return correlate(ranks(x), ranks(y));
}

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

RankingScores score_ranking(const std::vector<uint8_t>& is_relevant, int64_t relevant, int64_t at) {
  RankingScores scores;
  if (relevant == 0) return scores;
  const auto discount = [](int64_t rank) { return 1.0 / std::log2(static_cast<double>(rank + 2)); };
  double hits = 0.0, dcg = 0.0, ideal = 0.0;
  for (int64_t rank = 0; rank < std::ssize(is_relevant); ++rank) {
    if (is_relevant[static_cast<size_t>(rank)] == 0) continue;
    scores.average_precision += ++hits / static_cast<double>(rank + 1);
    if (rank >= at) continue;
    if (scores.reciprocal_rank == 0.0) scores.reciprocal_rank = 1.0 / static_cast<double>(rank + 1);
    dcg += discount(rank);
  }
  for (int64_t rank = 0; rank < std::min(at, relevant); ++rank) ideal += discount(rank);
  scores.average_precision /=
      static_cast<double>(std::min<int64_t>(relevant, std::ssize(is_relevant)));
  scores.ndcg = dcg / ideal;
  return scores;
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
