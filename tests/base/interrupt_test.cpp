// SPDX-License-Identifier: MIT
#include "finetune/base/interrupt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"
#include "finetune/base/stop_signals.h"

namespace finetune {
namespace {

class InterruptTest : public ::testing::Test {
 protected:
  ~InterruptTest() override { interrupt::reset(); }
};

TEST_F(InterruptTest, IsRequestedByEachOfItsSignals) {
  interrupt::install_handlers();
  EXPECT_FALSE(interrupt::is_requested());
  EXPECT_EQ(interrupt::signal_name(), "");
  struct Case {
    int number;
    const char* name;
  };
  for (const Case& c :
       {Case{SIGTERM, "SIGTERM"}, Case{SIGINT, "SIGINT"}, Case{SIGUSR1, "SIGUSR1"}}) {
    std::raise(c.number);
    EXPECT_TRUE(interrupt::is_requested());
    EXPECT_EQ(interrupt::signal_name(), c.name);
    interrupt::reset();
  }
}

TEST_F(InterruptTest, ThrowsThePhaseThatGaveWay) {
  EXPECT_NO_THROW(interrupt::throw_if_requested("reading"));
  interrupt::request(SIGTERM);
  EXPECT_EQ(testing::message_of<Interrupted>([] { interrupt::throw_if_requested("reading"); }),
            "reading");
}

TEST_F(InterruptTest, IgnoresAClosedPipeAndTerminal) {
  interrupt::install_handlers();
  std::raise(SIGPIPE);
  std::raise(SIGHUP);
  EXPECT_FALSE(interrupt::is_requested());
}

TEST_F(InterruptTest, IsRequestedByAHangupWhereAsked) {
  interrupt::install_handlers();
  EXPECT_THAT(interrupt::stop_signals(), ::testing::ElementsAre(SIGTERM, SIGINT, SIGUSR1));
  interrupt::stop_on_hangup();
  EXPECT_THAT(interrupt::stop_signals(), ::testing::Contains(SIGHUP));
  interrupt::install_handlers();  // called later by a command
  std::raise(SIGHUP);
  EXPECT_TRUE(interrupt::is_requested());
  EXPECT_EQ(interrupt::signal_name(), "SIGHUP");
  std::raise(SIGHUP);  // sent by the shell after the kernel's
  std::raise(SIGTERM);
  EXPECT_EQ(interrupt::signal_name(), "SIGHUP") << "still here, and saving";
  interrupt::reset();
  std::raise(SIGHUP);
  EXPECT_FALSE(interrupt::is_requested());
}

TEST_F(InterruptTest, IsRequestedFromAMomentOn) {
  const double now = interrupt::seconds_since_boot();
  interrupt::request_at(now + 3600, "session_hours");
  EXPECT_FALSE(interrupt::is_requested());
  EXPECT_FALSE(interrupt::is_moment_reached());
  interrupt::request_at(now, "session_hours (24 h)");
  EXPECT_TRUE(interrupt::is_requested());
  EXPECT_TRUE(interrupt::is_moment_reached());
  EXPECT_EQ(interrupt::signal_name(), "session_hours (24 h)");
}

TEST_F(InterruptTest, CountsASignalThatComesDirectlyAndForwardedOnce) {
  interrupt::install_handlers();
  std::raise(SIGINT);
  interrupt::forward(::getpid(), SIGINT);
  EXPECT_TRUE(interrupt::is_requested());
  EXPECT_EQ(interrupt::signal_name(), "SIGINT");
}

TEST_F(InterruptTest, SavesWhatAMomentAskedForWhenASignalComesToo) {
  interrupt::install_handlers();
  interrupt::request_at(0, "session_hours");
  ASSERT_TRUE(interrupt::is_requested());
  std::raise(SIGTERM);
  EXPECT_EQ(interrupt::signal_name(), "session_hours");
}

TEST(InterruptDeathTest, LeavesAtOnceOnASecondForwardedSignal) {
  EXPECT_EXIT(
      {
        interrupt::install_handlers();
        // The thread sanitizer delivers signals when a call blocks.
        interrupt::forward(::getpid(), SIGTERM);
        ::usleep(1000);
        interrupt::forward(::getpid(), SIGTERM);
        ::usleep(1000);
      },
      ::testing::ExitedWithCode(128 + SIGTERM), "");
}

TEST(InterruptDeathTest, LeavesAtOnceOnASecondSignal) {
  EXPECT_EXIT(
      {
        interrupt::install_handlers();
        std::raise(SIGTERM);
        std::raise(SIGINT);
      },
      ::testing::ExitedWithCode(128 + SIGINT), "");
}

}  // namespace
}  // namespace finetune
