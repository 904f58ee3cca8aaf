// SPDX-License-Identifier: MIT
#include "finetune/base/log.h"

#include <gtest/gtest.h>

#include <string>

namespace finetune {
namespace {

template <class Action>
std::string stderr_of(Action action) {
  ::testing::internal::CaptureStderr();
  action();
  return ::testing::internal::GetCapturedStderr();
}

class LogTest : public ::testing::Test {
 protected:
  ~LogTest() override {
    log::set_level("info");
    log::set_status_line(nullptr, nullptr);
  }
};

TEST_F(LogTest, WritesALineForEachMessageWithItsLevel) {
  EXPECT_EQ(stderr_of([] {
              log::debug("hidden");
              log::info("a");
              log::warning("b {} %v");
              log::error("c");
            }),
            "a\nwarning: b {} %v\nerror: c\n");
}

TEST_F(LogTest, HidesWhatLiesBelowTheLevel) {
  log::set_level("error");
  EXPECT_FALSE(log::is_enabled(log::Level::kWarning));
  EXPECT_EQ(stderr_of([] { log::warning("a"); }), "");
  log::set_level("debug");
  EXPECT_TRUE(log::is_enabled(log::Level::kDebug));
  EXPECT_EQ(stderr_of([] { log::debug("a"); }), "debug: a\n");
}

TEST_F(LogTest, ErasesAndRedrawsTheStatusLineAroundAMessage) {
  std::string calls;
  log::set_status_line([&] { calls += "erase "; }, [&] { calls += "redraw"; });
  static_cast<void>(stderr_of([] { log::info("a"); }));
  EXPECT_EQ(calls, "erase redraw");
}

}  // namespace
}  // namespace finetune
