// SPDX-License-Identifier: MIT
#include "finetune/report/curve.h"

#include <algorithm>
#include <cmath>

namespace finetune {
namespace {

constexpr size_t kMostRanges = 4096;
constexpr size_t kFewestPoints = 4;  // fewer are not a curve

}  // namespace

void Curve::take(const Numbered& point, Extremes& extremes) {
  auto& [least, greatest, strange] = extremes;
  const double value = point.point.value;
  if (!std::isfinite(value)) {
    strange = point;
    return;
  }
  if (!least || value < least->point.value) least = point;
  if (!greatest || value > greatest->point.value) greatest = point;
}

void Curve::add(const SeriesPoint& point) {
  newest_ = {.number = points_, .point = point};
  if (points_ == 0) first_ = newest_;
  if (points_ % range_points_ == 0) {
    if (ranges_.size() == kMostRanges) halve_ranges();
    if (points_ % range_points_ == 0) ranges_.emplace_back();
  }
  take(newest_, ranges_.back());
  ++points_;
}

void Curve::halve_ranges() {
  for (size_t i = 0; i < ranges_.size() / 2; ++i) {
    Extremes both = ranges_[2 * i];
    for (const auto& point : ranges_[2 * i + 1]) {
      if (point) take(*point, both);
    }
    ranges_[i] = both;
  }
  ranges_.resize(ranges_.size() / 2);
  range_points_ *= 2;
}

std::vector<Curve::Numbered> Curve::in_order(const std::vector<Extremes>& ranges) {
  std::vector<Numbered> points;
  for (const Extremes& extremes : ranges) {
    for (const auto& point : extremes) {
      if (point) points.push_back(*point);
    }
  }
  std::ranges::sort(points, {}, &Numbered::number);
  const auto is_same = [](const Numbered& a, const Numbered& b) { return a.number == b.number; };
  points.erase(std::unique(points.begin(), points.end(), is_same), points.end());
  return points;
}

std::vector<Curve::Extremes> Curve::in_wider_ranges(const std::vector<Numbered>& points,
                                                    size_t ranges) {
  std::vector<Extremes> wider(ranges);
  for (size_t i = 0; i < points.size(); ++i) take(points[i], wider[i * ranges / points.size()]);
  return wider;
}

std::vector<SeriesPoint> Curve::points(size_t most) const {
  std::vector<Extremes> ranges = ranges_;
  std::vector<Numbered> kept = in_order(ranges);
  if (kept.size() > std::max(most, kFewestPoints)) {
    ranges = in_wider_ranges(kept, std::max(most, kFewestPoints) / 2);
    if (!empty()) ranges.push_back({first_, newest_, std::nullopt});
    kept = in_order(ranges);
  }
  std::vector<SeriesPoint> result;
  result.reserve(kept.size());
  for (const Numbered& point : kept) result.push_back(point.point);
  return result;
}

}  // namespace finetune
