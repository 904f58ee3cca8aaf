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

TEST_F(LogTest, EscapesControlCharactersInEveryMessage) {
  EXPECT_EQ(stderr_of([] {
              log::info("\x1b[2Ja\a");
              log::warning("two\nlines, 猫");
              log::error("\xff");
            }),
            "\\u001b[2Ja\\u0007\nwarning: two\nlines, 猫\nerror: \\xff\n");
}

TEST_F(LogTest, BoundsEveryMessage) {
  const std::string name(5'000, 'n');
  const std::string line = stderr_of([&] { log::error("'" + name + "' is wrong; rename it"); });
  EXPECT_LT(line.size(), 2'100U);
  EXPECT_TRUE(line.starts_with("error: 'nnn")) << line;
  EXPECT_TRUE(line.ends_with("' is wrong; rename it\n")) << line;
  EXPECT_NE(line.find("... 3022 bytes left out ..."), std::string::npos) << line;
  std::string lines;
  for (int i = 0; i < 10'000; ++i) lines += "a line\n";
  EXPECT_LT(stderr_of([&] { log::error(lines); }).size(), 20'100U);
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
