// SPDX-License-Identifier: MIT
#include "train/setup/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "finetune/base/interrupt.h"
#include "support/golden.h"

namespace finetune {
namespace {

class SessionTest : public ::testing::Test {
 protected:
  ~SessionTest() override { interrupt::reset(); }

  static SessionStart start_now() {
    return {.now = interrupt::seconds_since_boot(), .process_age = 5, .boot_age = 7200};
  }
};

TEST_F(SessionTest, IsOverWhereItsHoursArePast) {
  TrainingArgs args;
  EXPECT_FALSE(is_session_over(args, start_now()));
  args.session_hours = 1;
  EXPECT_FALSE(is_session_over(args, start_now()));
  args.session_clock = "boot";
  EXPECT_TRUE(is_session_over(args, start_now()));
  args.session_clock = "process";
  args.session_hours = 5.5 / 3600;  // half a second is left
  EXPECT_TRUE(is_session_over(args, start_now()));
}

TEST_F(SessionTest, DoesNotBeginWhereTheUnitsAreSpent) {
  TrainingArgs args;
  args.hardware.text = "\"colab_t4\"";
  args.unit_budget = 10;
  RunState saved;
  EXPECT_NE(begin_session(args, start_now(), nullptr), nullptr);
  saved.session["cost"] = Cost{.units = 9}.to_json();
  EXPECT_NE(begin_session(args, start_now(), &saved), nullptr);
  saved.session["cost"] = Cost{.units = 10}.to_json();
  EXPECT_EQ(begin_session(args, start_now(), &saved), nullptr);
}

TEST_F(SessionTest, ExpectsSavesAsSlowAsTheyWere) {
  TrainingArgs args;
  args.session_hours = 1;
  RunState saved;
  saved.session["save_seconds"] = 40.0;
  const auto session = begin_session(args, start_now(), &saved);
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(session->clock.slowest_save(), 40);
  EXPECT_EQ(session->clock.measured_save(), 0);
}

TEST_F(SessionTest, TellsHowManySessionsAreLeft) {
  const SessionProgress progress{.sessions = 2,
                                 .steps = 100,
                                 .steps_left = 3000,
                                 .trained_seconds = 7000,
                                 .session_seconds = 150,
                                 .startup_seconds = 600};
  EXPECT_GOLDEN(describe_session(progress, std::nullopt));
  EXPECT_GOLDEN(describe_session(progress, SessionLimit{.seconds = 3600, .is_periodic = true}));
  EXPECT_GOLDEN(describe_session(progress, SessionLimit{.seconds = 3600}));
}

TEST_F(SessionTest, ForecastsWithoutTheSlowFirstSteps) {
  SessionProgress progress{.steps = 103, .steps_left = 60, .session_seconds = 80};
  progress.slow_seconds = 30;
  EXPECT_DOUBLE_EQ(progress.seconds_left().value(), 30);
  progress.steps = 5;  // two steps after the slow ones are too few
  EXPECT_DOUBLE_EQ(progress.seconds_left().value(), 960);
}

TEST_F(SessionTest, TakesTheSpeedOfEarlierSessionsWhereThisOneMadeNoStep) {
  SessionProgress progress{.sessions = 1, .steps_left = 10};
  EXPECT_GOLDEN(describe_session(progress, std::nullopt));
  progress.earlier_seconds_a_step = 2;
  EXPECT_THAT(describe_session(progress, std::nullopt), ::testing::HasSubstr("20 s left"));
}

}  // namespace
}  // namespace finetune
