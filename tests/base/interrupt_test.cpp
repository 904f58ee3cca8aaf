// SPDX-License-Identifier: MIT
#include "finetune/base/interrupt.h"

#include <gtest/gtest.h>

#include <csignal>

#include "base/temporary_folder.h"
#include "finetune/base/error.h"

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
