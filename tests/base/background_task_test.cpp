// SPDX-License-Identifier: MIT
#include "finetune/base/background_task.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <thread>

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

TEST(BackgroundTask, HandsOverWhatWasThrownOnce) {
  BackgroundTask task;
  task.start([] { throw std::runtime_error("no"); });
  task.wait();
  const std::exception_ptr failure = task.take_failure();
  EXPECT_THROW(std::rethrow_exception(failure), std::runtime_error);
  EXPECT_EQ(task.take_failure(), nullptr);
}

TEST(BackgroundTask, YieldsToOtherThreads) {
  BackgroundTask task;
  int niceness = 0;
  const int own = ::getpriority(PRIO_PROCESS, 0);
  task.start(
      [&] { niceness = ::getpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid))); });
  task.wait();
  EXPECT_GT(niceness, own);
  EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), own);
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
