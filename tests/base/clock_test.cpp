// SPDX-License-Identifier: MIT
#include "finetune/base/clock.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <cmath>
#include <limits>

namespace finetune {
namespace {

TEST(UnixSeconds, IsTheSystemsTimeToAMillisecond) {
  // Not time(): it reads a clock that is some milliseconds late.
  const auto system_seconds = [] {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count();
  };
  const double before = system_seconds();
  const double now = unix_seconds();
  const double after = system_seconds();
  EXPECT_GE(now, before - 0.001);
  EXPECT_LE(now, after + 0.001);
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
