// SPDX-License-Identifier: MIT
#include "finetune/config/session_time.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

namespace finetune {
namespace {

constexpr int64_t kNow = 1'700'000'000;  // 2023-11-14 22:13:20 UTC

class SessionTimeTest : public ::testing::Test {
 protected:
  static void use_zone(const char* zone) {
    ::setenv("TZ", zone, 1);
    ::tzset();
  }
  ~SessionTimeTest() override {
    ::unsetenv("TZ");
    ::tzset();
  }
};

TEST_F(SessionTimeTest, ReadsTimesWithAZone) {
  use_zone("JST-9");
  EXPECT_EQ(session_time("2023-11-14T22:13:20Z", kNow), kNow);
  EXPECT_EQ(session_time("2023-11-15T07:13:20+09:00", kNow), kNow);
  EXPECT_EQ(session_time("2023-11-15 07:13:20 +0900", kNow), kNow);
  EXPECT_EQ(session_time("2023-11-14T17:13:20.5-05", kNow), kNow);
}

TEST_F(SessionTimeTest, TakesTimesWithoutAZoneAsLocal) {
  use_zone("JST-9");
  EXPECT_EQ(session_time("2023-11-15T07:13:20", kNow), kNow);
  EXPECT_EQ(session_time("2023-11-15 07:13", kNow), kNow - 20);
}

TEST_F(SessionTimeTest, TakesAClockTimeAsTheNextOne) {
  use_zone("UTC");
  EXPECT_EQ(session_time("22:14", kNow), kNow + 40);
  EXPECT_EQ(session_time("22:13:20", kNow), kNow + 24 * 3600);
  EXPECT_EQ(session_time("22:13", kNow), kNow - 20 + 24 * 3600);
  EXPECT_EQ(session_time("00:00", kNow), kNow + 6400);
}

TEST_F(SessionTimeTest, KnowsThatANightMayHaveAnHourMore) {
  use_zone("CET-1CEST,M3.5.0,M10.5.0/3");
  const int64_t evening = 1'698'530'400;  // 2023-10-29 00:00 in summer time; 03:00 occurs twice
  EXPECT_EQ(session_time("06:00", evening), evening + 7 * 3600);
}

TEST_F(SessionTimeTest, RefusesWhatIsNoTime) {
  for (const char* text :
       {"", "tomorrow", "24:00", "7:30", "23:60", "23:30pm", "2023-02-30T10:00", "2023-13-01T10:00",
        "2023-11-14", "2023-11-14T22", "2023-11-14T22:13+", "2023-11-14T22:13+9:00", "12:30Z",
        "2023-11-14T22:13:20Zx", "20231114T221320Z"}) {
    EXPECT_EQ(session_time(text, kNow), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace finetune
