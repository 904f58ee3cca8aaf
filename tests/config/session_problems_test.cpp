// SPDX-License-Identifier: MIT
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/load_helpers.h"
#include "support/golden.h"

namespace finetune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::load_error;
using testing::load_yaml;

TEST(SessionKeys, AreTakenAsTheyAreWritten) {
  const TrainingArgs args = load_yaml(
                                "session_hours: 23.5\nsession_clock: boot\n"
                                "hardware: colab_t4\nunit_budget: 40\n"
                                "on_finish_command: [sh, -c, \"echo $FINETUNE_STEP\"]\n")
                                .args;
  EXPECT_EQ(args.session_hours, 23.5);
  EXPECT_EQ(args.session_clock, "boot");
  EXPECT_EQ(args.hardware.text, "\"colab_t4\"");
  EXPECT_EQ(args.unit_budget, 40);
  EXPECT_THAT(args.on_finish_command, ElementsAre("sh", "-c", "echo $FINETUNE_STEP"));
  EXPECT_EQ(load_yaml("session_deadline: 23:30").args.session_deadline, "23:30");
  EXPECT_EQ(load_yaml("session_deadline: 2030-01-31T23:30:00+09:00").args.session_deadline,
            "2030-01-31T23:30:00+09:00");
}

TEST(SessionKeys, ThatContradictEachOtherAreNamedTogether) {
  EXPECT_GOLDEN(load_error("session_hours: 2\nsession_deadline: 23:30\n"));
  EXPECT_GOLDEN(load_error("unit_budget: 2"));
  EXPECT_THAT(load_error("session_clock: boot"), HasSubstr("set session_hours"));
}

TEST(SessionKeys, RefuseValuesThatMeanNothing) {
  EXPECT_GOLDEN(load_error("session_deadline: tomorrow"));
  EXPECT_GOLDEN(load_error("session_hours: 0"));
  EXPECT_GOLDEN(load_error("hardware: colab_t5"));
  EXPECT_GOLDEN(load_error("hardware: {units: 2}"));
  EXPECT_GOLDEN(load_error("on_failure_command: [\"\", now]"));
  EXPECT_GOLDEN(load_error("on_failure_command: sudo poweroff"));
}

TEST(SessionKeys, CanBeTakenBackOnTheCommandLine) {
  const TrainingArgs args =
      load_yaml("session_hours: 2\nunit_budget: 3\nhardware: colab_t4\non_finish_command: [echo]\n",
                {"--session_hours=null", "--unit_budget=null", "--on_finish_command=null"})
          .args;
  EXPECT_FALSE(args.session_hours);
  EXPECT_FALSE(args.unit_budget);
  EXPECT_TRUE(args.on_finish_command.empty());
}

}  // namespace
}  // namespace finetune
