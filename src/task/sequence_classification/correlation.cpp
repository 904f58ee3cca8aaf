// SPDX-License-Identifier: MIT
#include "task/sequence_classification/correlation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

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

}  // namespace finetune
