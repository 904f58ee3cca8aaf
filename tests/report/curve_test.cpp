// SPDX-License-Identifier: MIT
#include "finetune/report/curve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace finetune {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Curve curve_of(int64_t points, const auto& value) {
  Curve curve;
  for (int64_t i = 0; i < points; ++i) {
    curve.add({.step = i, .value = value(i), .time = static_cast<double>(i)});
  }
  return curve;
}

TEST(Curve, OfFewPointsHasThemAll) {
  const Curve curve = curve_of(1200, [](int64_t i) { return std::sin(static_cast<double>(i)); });
  const std::vector<SeriesPoint> points = curve.points(1200);
  ASSERT_EQ(points.size(), 1200U);
  for (size_t i = 0; i < points.size(); ++i) {
    EXPECT_EQ(points[i].step, static_cast<int64_t>(i));
    EXPECT_EQ(points[i].value, std::sin(static_cast<double>(i)));
  }
  EXPECT_TRUE(Curve().empty());
  EXPECT_TRUE(Curve().points(10).empty());
}

TEST(Curve, OfAMillionPointsKeepsExtremesEndsAndNans) {
  const auto value = [](int64_t i) {
    if (i == 700'001) return kNan;
    if (i == 123'456) return 99.0;
    if (i == 999'998) return -99.0;
    return std::sin(static_cast<double>(i) * 0.1);
  };
  const std::vector<SeriesPoint> points = curve_of(1'000'000, value).points(1200);
  EXPECT_LE(points.size(), 1300U);
  EXPECT_GE(points.size(), 600U);
  EXPECT_EQ(points.front().step, 0);
  EXPECT_EQ(points.back().step, 999'999);
  const auto holds = [&](int64_t step) {
    return std::ranges::any_of(points, [&](const SeriesPoint& p) { return p.step == step; });
  };
  for (const int64_t step : {123'456, 999'998, 700'001}) EXPECT_TRUE(holds(step)) << step;
  for (size_t i = 1; i < points.size(); ++i) {
    EXPECT_GT(points[i].step, points[i - 1].step);
    EXPECT_LT(points[i].step - points[i - 1].step, 10'000);  // no part of the curve is missing
  }
}

// Whatever the length, at the edges of the ranges too.
TEST(Curve, KeepsLeastAndGreatestOfEveryLength) {
  for (const int64_t length : {1, 2, 5, 4095, 4096, 4097, 8191, 8193, 12'288, 50'001}) {
    for (const int64_t position : {int64_t{0}, length / 2, length - 1}) {
      const auto value = [&](int64_t i) { return i == position ? 5.0 : 0.001 * (i % 7); };
      const Curve curve = curve_of(length, value);
      const std::vector<SeriesPoint> points = curve.points(100);
      EXPECT_LE(points.size(), 160U);
      EXPECT_EQ(std::ranges::max(points, {}, &SeriesPoint::value).step, position) << length;
      EXPECT_EQ(curve.newest().step, length - 1);
    }
  }
}

}  // namespace
}  // namespace finetune
