// SPDX-License-Identifier: MIT
#include "train/setup/session_clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "finetune/base/interrupt.h"
#include "support/golden.h"

namespace finetune {
namespace {

using Unit = SessionClock::Unit;

// A process that started a minute ago, on a machine that booted an hour ago.
SessionStart example_start() {
  return {.now = 10'000, .process_age = 60, .boot_age = 3600, .wall_time = 1'700'000'000};
}

SessionClock clock_of(double seconds) {
  return SessionClock(SessionLimit{.moment = seconds, .seconds = seconds, .reason = "the test"});
}

class SessionClockTest : public ::testing::Test {
 protected:
  ~SessionClockTest() override { interrupt::reset(); }
};

TEST(SessionLimit, CountsHoursFromTheProcessExceptInAHostedNotebook) {
  TrainingArgs args;
  args.session_hours = 2;
  SessionStart start = example_start();
  EXPECT_EQ(SessionLimit::of(args, start)->moment, 10'000 - 60 + 7200);
  EXPECT_EQ(SessionLimit::of(args, start)->reason, "session_hours (2 h)");
  start.is_hosted_notebook = true;
  EXPECT_EQ(SessionLimit::of(args, start)->moment, 10'000 - 3600 + 7200);
  EXPECT_GOLDEN(SessionLimit::of(args, start)->reason);
  args.session_clock = "process";
  EXPECT_EQ(SessionLimit::of(args, start)->moment, 10'000 - 60 + 7200);
  start.is_hosted_notebook = false;
  args.session_clock = "boot";
  EXPECT_EQ(SessionLimit::of(args, start)->moment, 10'000 - 3600 + 7200);
}

TEST(SessionLimit, TakesADeadline) {
  TrainingArgs args;
  EXPECT_FALSE(SessionLimit::of(args, example_start()));
  args.session_deadline = "2023-11-14T23:13:20Z";  // an hour after wall_time
  const std::optional<SessionLimit> limit = SessionLimit::of(args, example_start());
  ASSERT_TRUE(limit);
  EXPECT_EQ(limit->moment, 10'000 + 3600);
  EXPECT_EQ(limit->seconds, 3660);
}

TEST(SessionLimit, TheEarlierOfTwoCounts) {
  const SessionLimit a{.moment = 1};
  const SessionLimit b{.moment = 2};
  EXPECT_EQ(earlier(a, b)->moment, 1);
  EXPECT_EQ(earlier(b, a)->moment, 1);
  EXPECT_EQ(earlier(std::nullopt, b)->moment, 2);
  EXPECT_EQ(earlier(a, std::nullopt)->moment, 1);
  EXPECT_FALSE(earlier(std::nullopt, std::nullopt));
}

TEST(SessionStart, ReadsAgesOfProcessAndMachine) {
  const SessionStart start = SessionStart::read();
  EXPECT_GE(start.process_age, 0);
  EXPECT_LT(start.process_age, 3600);
  EXPECT_GE(start.boot_age, start.process_age);
  EXPECT_LE(start.boot_age, start.now);
}

TEST(SessionStart, KnowsAHostedNotebookButNotItsKeys) {
  ::setenv("KAGGLE_USERNAME", "someone", 1);
  EXPECT_FALSE(SessionStart::read().is_hosted_notebook);
  ::unsetenv("KAGGLE_USERNAME");
  for (const char* name : {"COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE"}) {
    ::setenv(name, "x", 1);
    EXPECT_TRUE(SessionStart::read().is_hosted_notebook) << name;
    ::unsetenv(name);
  }
}

TEST_F(SessionClockTest, LeavesTimeForTwiceTheSlowestSaveTheNextUnitAndAReserve) {
  SessionClock clock = clock_of(1000);
  clock.expect_save(SessionClock::estimate_save_seconds(1'000'000'000));
  EXPECT_EQ(clock.margin(Unit::kStep), 2 * 4 + 10);
  clock.note_save(3);
  clock.note_save(2);
  EXPECT_EQ(clock.margin(Unit::kStep), 2 * 3 + 10);  // a measured time replaces the expected one
  clock.begin(Unit::kStep, 100);
  clock.end(Unit::kStep, 105);
  EXPECT_EQ(clock.margin(Unit::kStep), 2 * 3 + 5 + 10);
  EXPECT_EQ(clock.margin(Unit::kEvaluationBatch), 2 * 3 + 10);
}

TEST_F(SessionClockTest, LeavesTimeForAnotherSaveThatIsBeingWrittenAndForCopies) {
  SessionClock clock = clock_of(1000);
  clock.note_save(3);
  clock.note_saving(true);
  EXPECT_EQ(clock.margin(Unit::kStep), 3 * 3 + 10);
  clock.note_saving(false);
  clock.expect_copies(2 * SessionClock::estimate_copy_seconds(1'000'000'000));
  EXPECT_EQ(clock.margin(Unit::kStep), 2 * 3 + 2 * 65 + 10);
}

TEST_F(SessionClockTest, AMicroBatchNeedsTimeForTheUpdateBehindIt) {
  SessionClock clock = clock_of(1000);
  clock.begin(Unit::kMicroBatch, 0);
  clock.begin(Unit::kMicroBatch, 4);  // ends the open one
  clock.end(Unit::kMicroBatch, 5);
  clock.begin(Unit::kUpdate, 5);
  clock.end(Unit::kUpdate, 7);
  EXPECT_EQ(clock.margin(Unit::kMicroBatch), 4 * 0.99 + 2 + 10);
  // the same time until it is measured
  EXPECT_EQ(clock.margin(Unit::kEvaluationBatch), 4 * 0.99 + 10);
}

TEST_F(SessionClockTest, OnePauseFades) {
  SessionClock clock = clock_of(1000);
  clock.begin(Unit::kStep, 0);
  clock.end(Unit::kStep, 600);
  for (int i = 0; i < 1000; ++i) {
    clock.begin(Unit::kStep, 600 + i);
    clock.end(Unit::kStep, 601 + i);
  }
  EXPECT_NEAR(clock.margin(Unit::kStep), 1 + 10, 0.1);
}

TEST_F(SessionClockTest, KeepsAReserveOfASecondToAMinute) {
  EXPECT_EQ(clock_of(10).margin(Unit::kStep), 1);
  EXPECT_EQ(clock_of(1000).margin(Unit::kStep), 10);
  EXPECT_EQ(clock_of(24 * 3600).margin(Unit::kStep), 60);
}

TEST_F(SessionClockTest, AsksForTheStopThroughInterrupt) {
  const double now = interrupt::seconds_since_boot();
  SessionClock clock(
      SessionLimit{.moment = now + 100, .seconds = 100, .reason = "session_hours (0.1 h)"});
  clock.begin_start();
  EXPECT_FALSE(interrupt::is_requested());
  clock.expect(Unit::kStep, 98);
  clock.begin(Unit::kStep, now);
  EXPECT_FALSE(interrupt::is_requested());
  clock.note_save(1);  // 98 s for a step, 2 s for saving, 1 s reserve: no longer fits
  clock.begin(Unit::kStep, now);
  EXPECT_TRUE(interrupt::is_requested());
  EXPECT_EQ(interrupt::signal_name(), "session_hours (0.1 h)");
}

TEST_F(SessionClockTest, WithoutALimitOnlyMeasures) {
  SessionClock clock(std::nullopt);
  clock.begin(Unit::kStep, 0);
  clock.end(Unit::kStep, 1e9);
  clock.note_save(7);
  EXPECT_EQ(clock.measured_save(), 7);
  EXPECT_EQ(clock.margin(Unit::kStep), 0);
  EXPECT_FALSE(interrupt::is_requested());
}

}  // namespace
}  // namespace finetune
