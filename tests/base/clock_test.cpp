// SPDX-License-Identifier: MIT
#include "finetune/base/clock.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <ctime>
#include <limits>

namespace finetune {
namespace {

TEST(UnixSeconds, IsTheSystemsTimeToAMillisecond) {
  const auto before = static_cast<double>(std::time(nullptr));
  const double now = unix_seconds();
  const auto after = static_cast<double>(std::time(nullptr));
  EXPECT_GE(now, before);
  EXPECT_LT(now, after + 1);
  EXPECT_EQ(now, std::round(now * 1000) / 1000);
}

TEST(NowSeconds, NeverDecreases) {
  double last = now_seconds();
  for (int i = 0; i < 1000; ++i) {
    const double now = now_seconds();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(TimeText, IsInUtcOrInTheZoneOfTheProcess) {
  EXPECT_EQ(utc_time_text(1717236000.9), "2024-06-01 10:00:00");
  EXPECT_EQ(utc_time_text(0, "%H:%M UTC"), "00:00 UTC");
  ASSERT_EQ(::setenv("TZ", "XYZ-9", 1), 0);  // nine hours ahead
  ::tzset();
  EXPECT_EQ(local_time_text(1717236000, "%F %H:%M"), "2024-06-01 19:00");
  EXPECT_EQ(local_time_text(1717250400), "2024-06-01 23:00:00");
  ::unsetenv("TZ");
  ::tzset();
}

TEST(TimeText, IsEmptyForWhatNoCalendarHas) {
  EXPECT_EQ(utc_time_text(std::numeric_limits<double>::quiet_NaN()), "");
  EXPECT_EQ(utc_time_text(std::numeric_limits<double>::infinity()), "");
  EXPECT_EQ(local_time_text(-1e300), "");
}

}  // namespace
}  // namespace finetune
