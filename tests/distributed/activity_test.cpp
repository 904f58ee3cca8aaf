// SPDX-License-Identifier: MIT
#include "distributed/activity.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "finetune/distributed/board.h"

namespace finetune {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr IdleWatch::Clock::time_point kStart{std::chrono::hours(1)};

// Passes an activity to the watch once per second.
class IdleWatchTest : public testing::Test {
 protected:
  bool look(const Activity& activity, seconds pause = seconds(1)) {
    now_ += pause;
    return watch_.is_idle(activity, now_);
  }

 private:
  IdleWatch watch_{seconds(30)};
  IdleWatch::Clock::time_point now_ = kStart;
};

TEST_F(IdleWatchTest, FindsWhoDoesNothingAfterItsTimeout) {
  for (int second = 0; second <= 30; ++second) {
    EXPECT_FALSE(look({.processor_seconds = 5 + second * 0.001, .switches = 7})) << second;
  }
  EXPECT_TRUE(look({.processor_seconds = 5.031, .switches = 7}));
}

TEST_F(IdleWatchTest, SparesWhoUsesAProcessor) {
  for (int second = 0; second <= 60; ++second) {
    EXPECT_FALSE(look({.processor_seconds = second * 0.03})) << second;
  }
}

TEST_F(IdleWatchTest, SparesWhoseMainThreadWakes) {
  for (int second = 0; second <= 60; ++second) {
    EXPECT_FALSE(look({.switches = second})) << second;
  }
}

TEST_F(IdleWatchTest, SparesWhoWaitsForOthers) {
  for (int second = 0; second <= 60; ++second) {
    EXPECT_FALSE(look({.is_in_collective = true})) << second;
  }
  for (int second = 0; second < 30; ++second) EXPECT_FALSE(look({})) << second;
  look({});
  EXPECT_TRUE(look({}));
}

TEST_F(IdleWatchTest, BeginsAnewWhereTheProcessWasStopped) {
  for (int second = 0; second <= 25; ++second) EXPECT_FALSE(look({}));
  EXPECT_FALSE(look({}, seconds(1000)));
  for (int second = 0; second < 30; ++second) EXPECT_FALSE(look({})) << second;
}

TEST(Activity, CountsTheMeetingsOfAllThreads) {
  EXPECT_FALSE(Activity::of_this_process().is_in_collective);
  {
    const CollectiveScope outer;
    std::thread([] { const CollectiveScope inner; }).join();
    EXPECT_TRUE(Activity::of_this_process().is_in_collective);
  }
  EXPECT_FALSE(Activity::of_this_process().is_in_collective);
}

// The main thread waits for another one, as if it hung: the context switch of going to sleep is
// counted, and none after it.
TEST(Activity, SeesFromAnotherThreadThatTheMainThreadHangs) {
  bool was_idle = false;
  std::thread observer([&] {
    IdleWatch watch(milliseconds(200));
    const auto end = IdleWatch::Clock::now() + seconds(20);
    while (!was_idle && IdleWatch::Clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(50));
      was_idle = watch.is_idle(Activity::of_this_process(), IdleWatch::Clock::now());
    }
  });
  observer.join();
  EXPECT_TRUE(was_idle);
}

// The ranks treat a rank whose heartbeats stop as hung.
TEST(Heartbeat, BeatsNoMoreWhereTheMainThreadHangs) {
  Board& board = make_board(2);
  const Heartbeat heartbeat(board, 0, milliseconds(300));
  bool has_beaten = false;
  bool has_ended = false;
  std::thread observer([&] {
    const auto end = IdleWatch::Clock::now() + seconds(30);
    for (int64_t last = -1; !has_ended && IdleWatch::Clock::now() < end;) {
      std::this_thread::sleep_for(seconds(1));  // five heartbeats
      has_beaten |= board.beats[0] > 0;
      has_ended = has_beaten && board.beats[0] == last;
      last = board.beats[0];
    }
  });
  observer.join();
  EXPECT_TRUE(has_beaten);
  EXPECT_TRUE(has_ended);
}

TEST(Activity, SeesThatTheMainThreadWakesEachTime) {
  std::atomic<bool> is_over = false;
  std::atomic<bool> was_idle = false;
  std::thread observer([&] {
    IdleWatch watch(seconds(1));
    for (int i = 0; i < 30; ++i) {
      std::this_thread::sleep_for(milliseconds(50));
      if (watch.is_idle(Activity::of_this_process(), IdleWatch::Clock::now())) was_idle = true;
    }
    is_over = true;
  });
  while (!is_over) std::this_thread::sleep_for(milliseconds(5));
  observer.join();
  EXPECT_FALSE(was_idle);
}

}  // namespace
}  // namespace finetune
