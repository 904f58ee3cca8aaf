// SPDX-License-Identifier: MIT
#include "finetune/base/background_task.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <stdexcept>
#include <thread>
#include <vector>

namespace finetune {
namespace {

TEST(BackgroundTask, RunsOnePieceOfWorkAfterAnother) {
  BackgroundTask task;
  EXPECT_FALSE(task.is_running());
  std::atomic<int> done = 0;
  for (int i = 1; i <= 3; ++i) {
    task.start([&] { ++done; });
    EXPECT_TRUE(task.wait());
    EXPECT_EQ(done, i);
    EXPECT_EQ(task.take_failure(), nullptr);
  }
}

TEST(BackgroundTask, SaysWhetherWorkIsStillRunning) {
  BackgroundTask task;
  std::promise<void> gate;
  task.start([&] { gate.get_future().wait(); });
  EXPECT_TRUE(task.is_running());
  EXPECT_FALSE(task.wait(0.01));
  gate.set_value();
  EXPECT_TRUE(task.wait(60));
  EXPECT_FALSE(task.is_running());
}

// Runs in a separate process without address space for a thread's stack.
// Sanitizers need address space themselves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(BackgroundTask, WorksInPlaceWhereNoThreadIsToBeHad) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit little = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    ::setrlimit(RLIMIT_AS, &little);
    pthread_attr_t large;  // larger than the stacks of ended threads, which are reused
    ::pthread_attr_init(&large);
    ::pthread_attr_setstacksize(&large, size_t{64} << 20);
    ::pthread_setattr_default_np(&large);
    const auto here = std::this_thread::get_id();
    int done = 0;
    BackgroundTask task;
    for (int i = 0; i < 2; ++i) {
      task.start([&] { done += std::this_thread::get_id() == here ? 1 : 100; });
      if (!task.wait(0)) ::_exit(1);
    }
    task.start([] { throw std::runtime_error("work"); });
    ::_exit(done == 2 && task.take_failure() ? 0 : 2);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}
#endif

TEST(BackgroundTask, HandsOverWhatWasThrownOnce) {
  BackgroundTask task;
  task.start([] { throw std::runtime_error("no"); });
  task.wait();
  const std::exception_ptr failure = task.take_failure();
  EXPECT_THROW(std::rethrow_exception(failure), std::runtime_error);
  EXPECT_EQ(task.take_failure(), nullptr);
}

// Also where the process has a low priority already, as with `nice -n 12`.
TEST(BackgroundTask, YieldsToOtherThreads) {
  const auto yields = [] {
    const auto niceness = [] { return ::getpriority(PRIO_PROCESS, 0); };  // of this thread
    std::vector<bool> found;
    for (const int lowered : {0, 1}) {
      if (lowered != 0) ::setpriority(PRIO_PROCESS, 0, 12);
      const int own = niceness();
      BackgroundTask task;
      int in_task = 0;
      task.start([&] { in_task = niceness(); });
      task.wait();
      found.push_back(niceness() == own && in_task == std::min(own + 10, 19));
    }
    return found;
  };
  std::vector<bool> found;
  std::thread([&] { found = yields(); }).join();  // leaves the test's own priority alone
  EXPECT_EQ(found, std::vector<bool>({true, true}));
}

TEST(BackgroundTask, WaitsForItsWorkBeforeItEnds) {
  std::atomic<bool> done = false;
  {
    BackgroundTask task;
    task.start([&] {
      ::usleep(20000);
      done = true;
    });
  }
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace finetune
